// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/test/sshd"
)

// healthy answers as a node that is well.
const healthy = `case "$1" in "caisson-agent status"*) echo '{"health": "ok", "generation": 1}';; esac
`

// started is a machine that answers by a script.
func started(t *testing.T, answers string) *Box {
	t.Helper()
	sshd.Use(t, answers)
	box, err := Open(t.Context(), newSite(), "a", options(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = box.Close() }) // the machine goes with the test
	if err := box.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return box
}

// A node that starts over while its gates are waited for is waited for again, wherever that happens.
func TestStartsOverMeanwhile(t *testing.T) {
	for name, at := range map[string]string{"boot": "*is-system-running*", "status": `"caisson-agent status"*`, "units": "*--failed*"} {
		t.Run(name, func(t *testing.T) {
			box := started(t, `case "$1" in `+at+") test -e over || { touch over; exit 255; };; esac\n"+healthy)
			if err := box.LogIn(t.Context()); err != nil {
				t.Fatal(err)
			}
			if v, err := box.Settle(t.Context()); err != nil || !v.Passed {
				t.Errorf("%+v, %v", v, err)
			}
		})
	}
}

// A check with which the connection goes has failed, and a machine that went off meanwhile is down.
func TestLost(t *testing.T) {
	box := started(t, `case "$1" in *drop) exit 255;; *fail) exit 7;; *is-system-running*) kill $PPID; sleep 100;; esac`)
	if err := box.LogIn(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c, err := box.Check(t.Context(), "fail"); err != nil || c.Exit != 7 || c.Passed {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err := box.Check(t.Context(), "drop"); err != nil || c.Exit != -1 || c.Passed || !strings.Contains(c.Output, "the connection to the machine is lost") {
		t.Errorf("%+v, %v", c, err)
	}
	if err := box.LogIn(t.Context()); err != nil {
		t.Fatal(err)
	}
	var down *DownError
	if v, err := box.Settle(t.Context()); !errors.As(err, &down) {
		t.Errorf("%+v, %v", v, err)
	}
}

// Who interrupts ends the machine, too: that it is off says nothing of the node then.
func TestInterruptedIsNotDown(t *testing.T) {
	for range 20 {
		emulate(t, "exec sleep 1000")
		box, err := Open(t.Context(), newSite(), "a", options(t.TempDir()))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cut := context.WithCancel(t.Context())
		if err := box.Start(ctx); err != nil {
			t.Fatal(err)
		}
		cut()
		<-box.machine.Done()
		var down *DownError
		if err := box.LogIn(ctx); err == nil || errors.As(err, &down) {
			t.Errorf("%v", err)
		}
		if err := box.Close(); err != nil {
			t.Error(err)
		}
	}
}
