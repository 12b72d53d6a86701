package simulation

// mutant is a deliberate fault of the library: the simulation has to find it.
// A check that cannot fail proves nothing.
type mutant struct {
	name   string
	breaks string // the invariants, one of which is to be named
	edits  []edit
	by     string // the test of package arroyo that finds it, where this simulation looks too coarsely
}

// edit replaces a text that occurs once in a file of the module.
type edit struct{ file, from, to string }

var mutants = []mutant{
	{"a record is committed before it is settled", "I1", []edit{
		{"progress.go", "if done == len(s.records) {", "if done >= 0 {"},
	}, ""},
	{"the watermark skips a gap", "I1", []edit{
		{"span.go", "return bits.TrailingZeros64(^done)\n}\n\n// pending", "return bits.OnesCount64(done)\n}\n\n// pending"},
	}, ""},
	{"what is fetched is committed", "I1", []edit{
		{"committer.go", "offsets[p.state] = p.watermark\n\t\t\tcontinue", "offsets[p.state] = p.watermark\n\t\t\tif at, ok := r.consumer.startOf(p.state); ok {\n\t\t\t\toffsets[p.state] = at\n\t\t\t}\n\t\t\tcontinue"},
	}, ""},
	{"a batch is dropped at a flush", "I1", []edit{
		{"strategies/collector.go", "c.step.Count(string(why), 1)", "if why != byCount {\n\t\tarroyo.AckAll(members)\n\t\treturn nil\n\t}"},
	}, ""},
	{"what is queued at a revoke counts as done", "I1", []edit{
		{"recordlane.go", "for _, s := range dropped {\n\t\ts.giveBack(s.full)", "for _, s := range dropped {\n\t\ts.ack(s.full)"},
	}, ""},
	{"a revoke does not wait for what has begun", "I3 I5", []edit{
		{"drain.go", "func (r *run) drained(d *drain) bool {", "func (r *run) drained(d *drain) bool {\n\treturn true\n}\n\nfunc (r *run) drainedOnce(d *drain) bool {"},
	}, ""},
	{"the last commit of a drain is left out", "I5", []edit{
		{"drain.go", "offsets := r.toCommit(d.epochs, time.Now())", "offsets := map[*epochState]position{}"},
	}, ""},
	{"records of an epoch that is over are handed out", "I3", []edit{
		{"recordlane.go", "if !s.owner.state.fenced.Load() {", "if true {"},
		{"message.go", "return m.span != nil && m.span.mayBeFenced.Load() && m.span.fenced(m.index)", "return false"},
	}, ""},
	{"a partition that comes back stays paused", "I10", []edit{
		{"pause.go", "case was && !want:", "case was && !want && s == nil:"},
	}, ""},
	{"a dead letter counts as delivered when it is sent", "I1", []edit{
		{"lettersend.go", "l.policy.Producer.Produce(l.ctx, l.record(next), func", "letter := l.record(next)\n\tl.deliver(next, attempt)\n\tl.policy.Producer.Produce(l.ctx, letter, func"},
	}, ""},
	{"a dead letter that fails is forgotten", "I1", []edit{
		{"lettersend.go", "l.fail(next, attempt, err)", "l.deliver(next, attempt)"},
	}, ""},
	{"what is settled wakes nobody", "I8 I10", []edit{
		{"progress.go", "if p.lane.watched.Load() || p.run.watched.Load() || due > 0 && settled >= due {", "if due > 0 && settled >= due {"},
	}, "TestI10RoomIsSeenAtOnce"},
	{"who does not hold a partition commits it all the same", "I2", []edit{
		{"commit.go", "case c.open[s.Partition] != s || s.fenced.Load():", "case false:"},
		{"committer.go", "if p.known && moved && !p.state.fenced.Load() {", "if p.known && moved {"},
		{"run.go", "\t\t\tr.forget(p)\n\t\t}\n\t\tif !s.told", "\t\t}\n\t\tif !s.told"},
	}, ""},
	{"the queue of a lane is handed out from its end", "I4", []edit{
		{"recordlane.go", "l.queue = append(l.queue, &spans[i])", "l.queue = slices.Insert(l.queue, min(len(l.queue), l.head+1), &spans[i])"},
	}, ""},
	{"the start of a group is not committed", "I1 I15", []edit{
		{"start.go", "commits[s] = at", "_ = at"},
	}, ""},
	{"user code that ignores its context is waited for", "I8", []edit{
		{"drain.go", "if !r.waitForLanes(lanes, abandonGrace) {", "if !r.waitForLanes(lanes, time.Hour) {"},
	}, ""},
	{"a record at the gate is let through", "I14", []edit{
		{"synchronize.go", "ev.Records[i].Offset >= limit })", "ev.Records[i].Offset > limit })"},
	}, ""},
	{"a followed group that does not exist yet is not waited for", "I14", []edit{
		{"synchronize.go", "if at := f.at[g][p]; i == 0 || at < offset {", "if at, ok := f.at[g][p]; i == 0 || ok && at < offset {"},
	}, ""},
	{"that a followed group was set back is not noticed", "I14", []edit{
		{"synchronize.go", "maps.Copy(known, at)", "for p, o := range at {\n\t\t\t\tknown[p] = max(known[p], o)\n\t\t\t}"},
		{"synchronize.go", "clear(at) // what", "_ = at // what"},
	}, "TestI14OffsetsExpire"},
	{"a follower learns of commits late", "I14", []edit{
		{"synchronize.go", "if !c.sleep(c.root, every) {", "if !c.sleep(c.root, every+30*time.Second) {"},
	}, ""},
	{"what waits for a followed group stays parked", "I14", []edit{
		{"synchronize.go", "c.stream.unparkGated()\n", ""},
	}, ""},
	{"a member that was removed goes on as a new one", "I2 I5", []edit{
		{"lease.go", `if before == "" || before == c.member || c.leaving {`, "if _ = before; true {"},
	}, "TestRemovedBeforeAJoin"},
	{"what was parked first comes last", "I4", []edit{
		{"stream.go", "slices.Concat(e.parked, s.unparked)", "append(s.unparked, e.parked...)"},
	}, "TestI4ParkedFetchesStayInOrder"},
	{"an older commit ends the commit log", "I14", []edit{
		{"committer.go", "s.committed != offsets[s].offset", "s.committed < offsets[s].offset"},
	}, "TestCommitLogEndsWithTheLastCommit"},
	{"what failed is not fetched again", "I10", []edit{
		{"stream.go", "if c.sleep(s.ctx, pause) {", "if false && c.sleep(s.ctx, pause) {"},
	}, ""},
	{"a member that is cut off goes on", "I3", []edit{
		{"lease.go", "\t\tc.fenceLease()\n", ""},
	}, ""},
	{"who sends dead letters is left behind", "I11", []edit{
		{"drain.go", "defer r.letters.stop()", "_ = 0"},
		{"drain.go", "ended = r.letters.end(abandonGrace)", "ended = true"},
	}, ""},
	{"an older commit may come last", "I2 I5", []edit{
		{"commit.go", "case p.offset < s.committed:", "case false:"},
	}, ""},
}
