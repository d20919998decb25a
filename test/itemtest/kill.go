// SPDX-License-Identifier: Apache-2.0

package itemtest

import (
	"context"
	"testing"
)

// Killer is a context that ends the caller the nth time it is asked whether to
// go on, which items do before each write. Die must not return.
type Killer struct {
	context.Context
	N   int
	Die func()
}

// Err implements context.Context.
func (k *Killer) Err() error {
	if k.N--; k.N == 0 {
		k.Die()
	}
	return k.Context.Err()
}

type killSignal struct{}

// killed runs f until its nth write point and reports whether it came so far.
// The panic stands for a SIGKILL: an item has no deferred undo, so nothing of it
// runs after this.
func killed(t *testing.T, n int, f func(context.Context) error) (died bool) {
	t.Helper()
	defer func() {
		switch r := recover(); r.(type) {
		case nil:
		case killSignal:
			died = true
		default:
			panic(r)
		}
	}()
	k := &Killer{Context: t.Context(), N: n, Die: func() { panic(killSignal{}) }}
	if err := f(k); err != nil {
		t.Fatalf("without a kill: %v", err)
	}
	return false
}
