// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/caisson-os/caisson/bootagent/trace"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// keepTrace keeps the steps of a run: as the first ones, where this root was not made
// what it should be before, else as the last.
func (n *Node) keepTrace(steps []spec.Step) error {
	var t spec.Trace
	if n.begun() {
		var err error
		if t, err = n.readTrace(); err != nil {
			n.o.Say("the trace of this boot is begun anew: %v", err)
			t = spec.Trace{}
		}
		t.Last = steps
	} else {
		t.First = steps
	}
	data, err := spec.Encode(t)
	if err != nil {
		return err
	}
	return durable.WriteFile(n.path(paths.RunTrace), data, 0o640)
}

func (n *Node) readTrace() (t spec.Trace, err error) {
	data, err := os.ReadFile(n.path(paths.RunTrace))
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &t)
	}
	return t, err
}

// Trace says how long the steps took that made this node as it is.
func (n *Node) Trace() (*spec.Trace, error) {
	t, err := n.readTrace()
	if err != nil {
		return nil, fmt.Errorf("read trace: %w", err)
	}
	found, err := n.running()
	if err != nil {
		return nil, err
	}
	t.Node, t.BootID, t.Boot = found.Overlay.Node, n.scopes.Kernel, n.boot.Trace
	t.Started = time.Now().Add(-uptime()).UTC().Truncate(time.Second)
	return &t, nil
}

// uptime is how long this kernel runs.
func uptime() time.Duration { return trace.Uptime() }
