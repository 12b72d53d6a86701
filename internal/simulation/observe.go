package simulation

import (
	"fmt"
	"sync"
	"time"

	"github.com/arroyo-go/arroyo"
)

// fact is something that was seen.
type fact struct {
	at        time.Time
	kind      factKind
	life      *life // of which member
	epoch     arroyo.Epoch
	partition int32
	offset    int64
	id        string
	excuse    string
	accepted  bool      // of factAsked: the group has it
	owner     string    // of factAsked: the other member that has the partition
	left      time.Time // of factEnded: when it was told to leave
}

type factKind string

const (
	factHanded    factKind = "handed out"
	factDone      factKind = "done" // processed or dropped: a terminal outcome
	factLetter    factKind = "dead letter"
	factGiven     factKind = "given"  // to a member that follows
	factCommit    factKind = "commit" // was asked for by a life
	factAsked     factKind = "asked"  // a commit of the first group, by whoever it was
	factAudit     factKind = "audit"  // a commit of the second group that is followed
	factAssigned  factKind = "assigned"
	factRevoked   factKind = "revoked"
	factLost      factKind = "lost"
	factAbandoned factKind = "abandoned" // work of an epoch at a deadline
	factEnded     factKind = "ended"     // a life, with its error
	factCrashed   factKind = "crashed"
	factCut       factKind = "cut off" // nothing reaches the brokers
	factHealed    factKind = "healed"
)

// dropped is the excuse of a record that was dropped: that may be decided again.
const dropped = "dropped"

// history is everything that was seen, in order.
type history struct {
	mu    sync.Mutex
	facts []fact
}

// add returns the index of what it added.
func (h *history) add(f fact) int {
	f.at = time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.facts = append(h.facts, f)
	return len(h.facts) - 1
}

func (f fact) String() string {
	who := "-"
	if f.life != nil {
		who = f.life.name
	}
	return fmt.Sprintf("%9.3fs %s %s %d@%d #%d %s %s", f.at.Sub(epochStart).Seconds(), who, f.kind, f.partition, f.offset, f.epoch.N, f.id, f.excuse)
}

var epochStart = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // of bubbles
