// SPDX-License-Identifier: Apache-2.0

package culprit

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/sandbox"
	"github.com/caisson-os/caisson/test/fixture"
	"github.com/caisson-os/caisson/test/sshd"
)

func TestMain(m *testing.M) {
	sshd.Main()
	os.Exit(m.Run())
}

// booted is a node of one generation whose machine answers by a script.
func booted(t *testing.T, answers string) (n *Node, dir string) {
	t.Helper()
	f := newShelf(t)
	f.publish(t, fixture.Overlay(nil), pushed(t, f.registry, "1", nil), publish.By{})
	n = f.node(t, "layer: {base: {debian: {suite: trixie}}, kernel: {package: linux-image-amd64}}\n")
	dir = sshd.Use(t, answers)
	n.Box = sandbox.Options{Dir: t.TempDir(), Now: f.p.Now, Console: io.Discard}
	n.Within, n.Tell, n.then, n.boot = time.Hour, func(*sandbox.Box) {}, map[string]Past{}, n.inMachine
	if err := n.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return n, dir
}

const healthy = `case "$1" in "caisson-agent status"*) echo '{"health": "ok", "generation": 1}';; esac
`

// What a node does while it is asked is an answer: a check that takes the connection with it has failed, and a node
// that starts over before its gates are decided is asked again.
func TestAnswersOfAMachine(t *testing.T) {
	for name, test := range map[string]struct {
		answers string
		want    Answer
	}{
		"well":        {healthy, Answer{Outcome: Good}},
		"fails":       {healthy + `case "$1" in *true) exit 7;; esac`, Answer{Bad, "true ended with 7"}},
		"restarts it": {healthy + `case "$1" in *true) exit 255;; esac`, Answer{Bad, "true: the connection to the machine is lost"}},
		"starts over": {`case "$1" in *status*) test -e over || { touch over; exit 255; };; esac` + "\n" + healthy, Answer{Outcome: Good}},
		"goes off":    {`case "$1" in *status*) kill $PPID; exec sleep 1000;; esac`, Answer{Skip, "the node does not come up: "}},
	} {
		t.Run(name, func(t *testing.T) {
			n, _ := booted(t, test.answers)
			if got, err := n.Generation(t.Context(), 0); err != nil || got != test.want {
				t.Errorf("%+v, %v, want %+v", got, err, test.want)
			}
		})
	}
}

// Who interrupts is given no answer, wherever the machine is.
func TestInterruptedMachine(t *testing.T) {
	for name, at := range map[string]string{"gates": "*is-system-running*", "check": "*true"} {
		t.Run(name, func(t *testing.T) {
			n, dir := booted(t, `case "$1" in `+at+") touch here; exec sleep 1000;; esac\n"+healthy)
			ctx, cut := context.WithCancel(t.Context())
			defer cut()
			go func() {
				for ctx.Err() == nil {
					if _, err := os.Stat(filepath.Join(dir, "here")); err == nil {
						cut()
					}
					time.Sleep(10 * time.Millisecond)
				}
			}()
			if got, err := n.Generation(ctx, 0); !errors.Is(err, context.Canceled) || got != (Answer{}) {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}
