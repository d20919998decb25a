// SPDX-License-Identifier: Apache-2.0

// Package item says what a runtime item is: one kind of setting (sysctl, mounts,
// …) that can be looked at, applied and taken back on a running system.
//
// It holds the interface, the journal entry and nothing that acts. The kinds
// are directories beside it, their order is the table in package items, and
// test/itemtest is the suite that each of them passes. Kinds never import each
// other.
package item

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/caisson-os/caisson/spec"
)

// Makes reports whether this run makes an account: a name in /etc/passwd or /etc/group. What
// belongs to it can wait; nil makes none.
type Makes func(database, name string) bool

// NoAccount is the error of a name that a database has not.
func (m Makes) NoAccount(database, name string) error {
	err := fmt.Errorf("%s has no %q", path.Base(database), name)
	if m != nil && m(database, name) {
		err = fmt.Errorf("%w %w, which comes with this generation", err, ErrNotYet)
	}
	return err
}

// ErrNotYet is the error of what another setting makes.
var ErrNotYet = errors.New("yet")

// Item is one kind of runtime setting together with what is wanted of it.
//
// Before every write, to the system or to the journal, an item asks ctx.Err()
// and stops when it is not nil. That makes "cancelled between any two
// writes" a thing that can be tested.
type Item interface {
	// Name is the kind; it is Drift.Item, Entry.Item and ItemStatus.Name.
	Name() string

	// Check compares and writes nothing. Its drift has a stable order and holds
	// also what cannot be done (ActionRefuse), what cannot be done yet
	// (ActionDefer) and what left the config (ActionRemove: Key is the key of
	// the journal's entry). The error is for a check that could not be made.
	Check(ctx context.Context) ([]spec.Drift, error)

	// Wanted is how many settings are wanted, as far as the last check found them.
	Wanted() int

	// Apply does the drift that Check returned: adds, changes and runs. What was
	// there before goes to the journal first. One key's failure does not stop
	// the others; the error joins them all.
	Apply(ctx context.Context, drift []spec.Drift) error

	// Restore puts back what the entries say and forgets those that it put back.
	Restore(ctx context.Context, prior []Entry) error
}

type scriptKey struct{}

// HearScripts has began called for each script that an item waits for under a context, with
// its timeout; what began returns is called when the script is over. Who bounds a run counts
// no time twice that way.
func HearScripts(ctx context.Context, began func(limit time.Duration) (ended func())) context.Context {
	return context.WithValue(ctx, scriptKey{}, began)
}

// BeginScript says that a script begins which is waited for, until ended is called.
func BeginScript(ctx context.Context, limit time.Duration) (ended func()) {
	if began, ok := ctx.Value(scriptKey{}).(func(time.Duration) func()); ok {
		return began(limit)
	}
	return func() {}
}
