// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/store"
	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
	"github.com/caisson-os/caisson/test/storetest"
)

// tries has a hub look at its database a few times, as it does by itself.
func (r *rig) tries(h *Hub) {
	r.Helper()
	for range 3 {
		if err := h.checkStore(r.Context()); err != nil {
			h.noteAway(err)
		}
	}
}

// until waits for something that a hub does by itself.
func (r *rig) until(what string, done func() bool) {
	r.Helper()
	for end := time.Now().Add(5 * time.Minute); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			r.Fatalf("not in 5 minutes: %s", what)
		}
	}
}

// TestTheDatabaseIsAway stops PostgreSQL below two instances and starts it again: they go
// on, say it once, take nothing meanwhile, and one of them writes afterwards.
func TestTheDatabaseIsAway(t *testing.T) {
	require.Slow(t)
	server := storetest.StartPostgres(t)
	r := newRigAt(t, server.Name, "n1", "n2")
	r.hears = true
	r.restart()
	r.until("it writes again", r.hub.Writes) // PostgreSQL may take a while to see that the one before has gone
	second, _ := r.open()
	r.must(r.report("k1", "n1", 1, nil))
	r.must(r.report("k2", "n2", 1, nil))
	r.must(r.hub.TakeSlot(t.Context(), "default", "n1", r.proof("k1")))
	for round := range 2 {
		server.Stop()
		r.until("both notice", func() bool { return r.hub.Fleet().DatabaseTrouble != "" && second.Fleet().DatabaseTrouble != "" })
		said := r.said()
		for _, h := range []*Hub{r.hub, second} {
			r.tries(h)
			if h.Writes() {
				t.Error("it takes reports without a database")
			}
			if err := h.Report(t.Context(), r.sealed("k1", "n1", 2, nil)); !errors.Is(err, ErrAway) {
				t.Errorf("a report: %v", err)
			}
			if err := h.FreeSlot(t.Context(), "default", "n1", r.proof("k1")); !errors.Is(err, ErrAway) {
				t.Errorf("a slot: %v", err)
			}
			if _, err := h.Node(t.Context(), "n1"); !errors.Is(err, ErrAway) {
				t.Errorf("a node: %v", err)
			}
			if len(h.Nodes()) != 2 || h.Fleet().Generation != 1 {
				t.Errorf("it shows %d nodes", len(h.Nodes()))
			}
		}
		if now := r.said(); len(now) != len(said) {
			t.Errorf("round %d: it says more with each try:\n%s", round, strings.Join(now[len(said):], "\n"))
		}
		// What could not be heard is not silence, then and afterwards.
		r.later(time.Hour)
		r.tries(r.hub)
		if c, why := r.hub.Nodes()[0].Condition(r.hub.Now()); c != view.Fine {
			t.Errorf("n1 is %s: %s", c, why)
		}
		server.Start()
		r.until("one writes", func() bool { return r.hub.Writes() || second.Writes() })
		r.until("the other knows", func() bool {
			return r.hub.Fleet().DatabaseTrouble == "" && second.Fleet().DatabaseTrouble == ""
		})
		writer := r.hub
		if second.Writes() {
			writer = second
		}
		if r.hub.Writes() && second.Writes() {
			t.Fatal("both write")
		}
		r.must(writer.Report(t.Context(), r.sealed("k1", "n1", uint64(2+round), nil)))
		d, err := writer.Node(t.Context(), "n1")
		if r.must(err); d.Condition != view.Fine || d.Report.Seq != uint64(2+round) || len(writer.Slots()[0].Held) != 1 {
			t.Errorf("%+v", d)
		}
	}
}

// TestALockedDatabase: a file of SQLite that somebody else holds locked is one that is
// away, until he lets it go.
func TestALockedDatabase(t *testing.T) {
	require.Slow(t)
	r := newRig(t, "n1")
	r.must(r.report("k1", "n1", 1, nil))
	other, err := sql.Open("sqlite", strings.TrimPrefix(r.db, "sqlite:"))
	r.must(err)
	defer other.Close() // the test is over
	c, err := other.Conn(t.Context())
	r.must(err)
	_, err = c.ExecContext(t.Context(), "BEGIN IMMEDIATE")
	r.must(err)
	if err := r.report("k1", "n1", 2, nil); err == nil {
		t.Fatal("a report is taken")
	}
	r.until("it notices", func() bool { return strings.Contains(r.hub.Fleet().DatabaseTrouble, "locked") })
	_, err = c.ExecContext(t.Context(), "ROLLBACK")
	r.must(err)
	r.until("it writes again", r.hub.Writes)
	r.must(r.report("k1", "n1", 2, nil))
}

// TestWhatNoWaitingMends ends the service: another release has changed the tables.
func TestWhatNoWaitingMends(t *testing.T) {
	require.Slow(t)
	storetest.Each(t, func(t *testing.T, db string) {
		r := newRigAt(t, db, "n1")
		s, err := store.Open(t.Context(), r.db)
		r.must(err)
		defer s.Close() // the test is over
		r.stop()
		h, err := Open(t.Context(), r.options(s))
		r.must(err)
		done := make(chan error, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		go func() { done <- h.Run(ctx) }()
		kind := "pgx"
		file, ok := strings.CutPrefix(r.db, "sqlite:")
		if ok {
			kind = "sqlite"
		}
		other, err := sql.Open(kind, file)
		r.must(err)
		defer other.Close() // the test is over
		_, err = other.ExecContext(t.Context(), "INSERT INTO goose_db_version (version_id, is_applied) VALUES (99999, true)")
		r.must(err)
		h.noteAway(errors.New("the connection was cut"))
		if err := <-done; err == nil || !strings.Contains(err.Error(), "later release") {
			t.Errorf("it ends with %v", err)
		}
	})
}

// TestWhatTheDatabaseCannotHold: a node that reports such text ends no service, and is
// taken or refused.
func TestWhatTheDatabaseCannotHold(t *testing.T) {
	require.Slow(t)
	storetest.Each(t, func(t *testing.T, db string) {
		r := newRigAt(t, db, "n1")
		r.must(r.report("k1", "n1", 1, nil))
		r.must(r.report("k1", "n1", 2, func(o *spec.Report) { o.Axes.Health = spec.Axis{State: "degraded", Detail: "a\x00b"} }))
		r.refused("a boot", r.report("k1", "n1", 3, func(o *spec.Report) { o.BootID = "a\x00b" }))
		r.is("n1", view.Degraded)
		if !r.hub.Writes() {
			t.Error(r.hub.Fleet().DatabaseTrouble)
		}
	})
}

// TestWhatNobodyCouldTake: as long as it is not known what is published no report is taken, which
// is not silence of nodes.
func TestWhatNobodyCouldTake(t *testing.T) {
	r := newRig(t, "n1")
	r.hears = true
	r.must(r.report("1", "n1", 1, nil))
	r.stop()
	s, err := store.Open(t.Context(), r.db)
	r.must(err)
	defer s.Close() // nothing more is written
	o := r.options(s)
	index, away := o.Index, errors.New("no route")
	o.Index = func(ctx context.Context, known string) (Published, error) {
		if away != nil {
			return Published{}, away
		}
		return index(ctx, known)
	}
	h, err := Open(t.Context(), o)
	r.must(err)
	r.later(2 * time.Hour)
	away = nil
	h.readIndex(t.Context())
	d, err := h.Node(t.Context(), "n1")
	r.must(err)
	if d.Condition != view.Fine {
		t.Errorf("n1 is %s: %s", d.Condition, d.Why)
	}
	r.later(time.Hour)
	if d, err = h.Node(t.Context(), "n1"); err != nil || d.Condition != view.Silent {
		t.Errorf("an hour later n1 is %v, %v", d, err)
	}
}
