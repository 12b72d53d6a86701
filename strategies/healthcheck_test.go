package strategies_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/strategies"
)

// probe looks at the file as a liveness probe does.
type probe struct {
	t    *testing.T
	file string
}

func newProbe(t *testing.T) *probe { return &probe{t, filepath.Join(t.TempDir(), "health")} }

// expectAge checks how long ago the file was touched.
func (p *probe) expectAge(want time.Duration) {
	p.t.Helper()
	synctest.Wait()
	info, err := os.Stat(p.file)
	if err != nil {
		p.t.Fatal(err)
	}
	if got := time.Since(info.ModTime()).Round(time.Second); got != want {
		p.t.Errorf("the file was touched %v ago, want %v", got, want)
	}
}

func TestHealthcheckOfAnIdleMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProbe(t)
		r := onLane(t, strategies.Healthcheck(p.file, 10*time.Second, strategies.Noop[*kgo.Record]()))
		p.expectAge(0) // there is neither a partition nor a record
		wait(9 * time.Second)
		p.expectAge(9 * time.Second)
		wait(time.Second)
		p.expectAge(0)
		r.feed(r.assign(0), "x", "y")
		wait(15 * time.Second)
		p.expectAge(5 * time.Second)
		r.finish()
		wait(time.Minute)
		p.expectAge(65 * time.Second) // the run is over
	})
}

// A member that gets no partition is well.
func TestHealthcheckOfAStandby(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProbe(t)
		r := newRig(t, 1, strategies.Noop[*kgo.Record]())
		standby := benchOn(t, r.broker, strategies.Healthcheck(p.file, time.Second, strategies.Noop[*kgo.Record]()))
		wait(time.Minute)
		if info, err := os.Stat(p.file); err != nil || time.Since(info.ModTime()) > time.Second {
			t.Errorf("the file is not touched: %v, %v", info, err)
		}
		standby.stopsWithin(time.Second)
	})
}

// A file that is there is touched, with what is in it left alone.
func TestHealthcheckKeepsTheFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProbe(t)
		if err := os.WriteFile(p.file, []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
		r := onLane(t, strategies.Healthcheck(p.file, 10*time.Second, strategies.Noop[*kgo.Record]()))
		p.expectAge(0)
		r.finish()
		if content, err := os.ReadFile(p.file); err != nil || string(content) != "mine" {
			t.Errorf("the file has %q (%v)", content, err)
		}
	})
}

// A pipeline that is stuck is not touched, be it in a call or behind one, and
// it is again when it goes on.
func TestHealthcheckOfAStuckPipeline(t *testing.T) {
	t.Run("in a call", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newProbe(t)
			r := onLane(t, strategies.Healthcheck(p.file, 10*time.Second, strategies.ForEach(
				func(context.Context, arroyo.Message[*kgo.Record]) error {
					time.Sleep(time.Minute)
					return nil
				})))
			r.feed(r.assign(0), "x")
			wait(59 * time.Second)
			p.expectAge(59 * time.Second)
			wait(2 * time.Second)
			p.expectAge(time.Second)
			r.finish()
		})
	})
	t.Run("with messages that are not settled", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newProbe(t)
			end := &collect[*kgo.Record]{}
			r := onLane(t, strategies.Healthcheck(p.file, 10*time.Second, end))
			e := r.assign(0)
			r.feed(e, "x", "y", "z")
			wait(35 * time.Second)
			p.expectAge(25 * time.Second) // at 10 s there was progress: they came
			end.got.all()[0].Ack()
			wait(10 * time.Second)
			p.expectAge(5 * time.Second) // one of them is settled
			wait(60 * time.Second)
			p.expectAge(65 * time.Second)
			r.feed(e, "more")
			wait(10 * time.Second)
			p.expectAge(5 * time.Second) // one was taken in
			r.Fence(e)
			wait(60 * time.Second)
			p.expectAge(5 * time.Second) // nothing of ours is left
			r.finish()
		})
	})
}

func TestHealthcheckFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "missing", "health")
		r := onLane(t, strategies.Healthcheck(file, time.Second, strategies.Noop[*kgo.Record](), strategies.Name("alive")))
		<-r.Done()
		var step *arroyo.StepError
		if err := r.Err(); !errors.Is(err, fs.ErrNotExist) || !errors.As(err, &step) || step.Step != "alive" {
			t.Errorf("the run ended with %v", err)
		}
	})
	synctest.Test(t, func(t *testing.T) { // later
		dir := filepath.Join(t.TempDir(), "dir")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		r := onLane(t, strategies.Healthcheck(filepath.Join(dir, "health"), time.Second, strategies.Noop[*kgo.Record](), strategies.Name("alive")))
		wait(time.Second / 2)
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		<-r.Done()
		var step *arroyo.StepError
		if err := r.Err(); !errors.Is(err, fs.ErrNotExist) || !errors.As(err, &step) || step.Step != "alive" {
			t.Errorf("the run ended with %v", err)
		}
	})
}
