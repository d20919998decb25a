// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/caisson-os/caisson/internal/efivar"
	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/sandbox/plug"
	"github.com/caisson-os/caisson/spec"
)

// Verdict holds what a node's agent says of the node.
type Verdict struct {
	Passed bool   // its health is ok, and its gates hold
	Reason string // why not
	Health spec.Health
	Secure bool     // the machine's firmware verifies what it starts
	Gates  []string // names of the site's health checks that were looked at
	Failed []string // units of systemd that failed: they decide nothing by themselves
	Why    string   // what 'caisson-agent why' says of a node that did not pass
}

// booted waits until the boot is over, for five minutes at most. It asks again each ten
// seconds, since a --wait may miss the end.
const booted = "for i in $(seq 30); do timeout 10 systemctl is-system-running --wait >/dev/null; test $? -eq 124 || break; done; "

// Settle waits until the machine has booted and its agent's gates have passed or failed. A node
// that starts over meanwhile is waited for again.
func (b *Box) Settle(ctx context.Context) (v *Verdict, err error) {
	err = b.step("settle", func() error {
		for {
			if v, err = b.verdict(ctx); !errors.Is(err, machine.ErrLost) {
				return err
			}
			if err := b.logIn(ctx, b.o.Secure); err != nil {
				return err
			}
		}
	})
	return v, err
}

func (b *Box) verdict(ctx context.Context) (v *Verdict, err error) {
	_, err = b.Run(ctx, booted+"systemctl is-active --quiet caisson-agent.service")
	switch _, ended := errors.AsType[*ssh.ExitError](err); {
	case ended:
		v = &Verdict{Reason: "caisson-agent.service does not run", Health: spec.HealthBroken}
		return v, v.explain(ctx, &b.guest)
	case err != nil:
		return nil, err
	}
	for v == nil {
		st, err := b.Status(ctx)
		if err != nil {
			return nil, err
		}
		if v = judge(st, b.generation); v != nil {
			break
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the gates of node %s: %w", b.node.Name, ctx.Err())
		case <-time.After(3 * time.Second):
		}
	}
	if b.want.Gates != nil {
		v.Gates = plain.Each(b.want.Gates.Checks, func(c spec.HealthCheck) string { return c.Name })
	}
	if b.o.Secure {
		if err := v.askFirmware(ctx, &b.guest); err != nil {
			return nil, err
		}
	}
	return v, v.explain(ctx, &b.guest)
}

// askFirmware asks the machine whether its firmware verified what it started.
func (v *Verdict) askFirmware(ctx context.Context, g *guest) error {
	said, err := g.Run(ctx, "od -An -tu1 -j4 -N1 "+efivar.Dir+"/"+efivar.SecureBoot.File())
	if err != nil {
		return fmt.Errorf("ask the machine for secure boot: %w", err)
	}
	if v.Secure = strings.TrimSpace(said) == "1"; !v.Secure && v.Passed {
		v.Passed, v.Reason = false, "the machine's firmware does not verify what it starts"
	}
	return nil
}

// explain adds what a person would ask next.
func (v *Verdict) explain(ctx context.Context, g *guest) error {
	failed, err := g.Run(ctx, "systemctl --failed --plain --no-legend")
	if err != nil {
		return err
	}
	for line := range strings.Lines(failed) {
		if words := strings.Fields(line); len(words) > 0 {
			v.Failed = append(v.Failed, words[0])
		}
	}
	if !v.Passed {
		v.Why, _ = g.Run(ctx, "caisson-agent why") // it ends with 3 where something is wrong
	}
	return nil
}

// judge says what a status amounts to, nil while it does not say yet.
func judge(st *spec.Status, generation uint64) *Verdict {
	v := &Verdict{Health: st.Health}
	switch {
	case st.Rejected != nil:
		v.Reason = st.Rejected.Reason
	case st.Trial != nil && st.Trial.Undone != "":
		v.Reason = st.Trial.Undone
	case st.Activity == spec.ActivitySoaking, st.Generation < generation:
		return nil
	case st.Health != spec.HealthOK:
		v.Reason = "health is " + string(st.Health)
		if st.HealthDetail != "" {
			v.Reason += ": " + st.HealthDetail
		}
	default:
		v.Passed = true
	}
	return v
}

// Status returns the status that the node's agent prints.
func (b *Box) Status(ctx context.Context) (*spec.Status, error) {
	text, err := b.Run(ctx, "caisson-agent status -o json || [ $? -eq 3 ]")
	if err != nil {
		return nil, err
	}
	var st spec.Status
	if err := json.Unmarshal([]byte(text), &st); err != nil {
		return nil, fmt.Errorf("status of node %s: %w", b.node.Name, err)
	}
	return &st, nil
}

// Check is a command that was run on the node as root.
type Check struct {
	Command string `json:"command"`
	Passed  bool   `json:"passed"`           // its exit code is 0
	Exit    int    `json:"exit"`             // that code; -1 where it gave none
	Output  string `json:"output,omitempty"` // the end of what it said
}

// checkOutput is how much of a command's output is kept.
const checkOutput = 64 << 10

// Check runs a command line on the node as root. One with which the connection goes has failed.
func (b *Box) Check(ctx context.Context, command string) (c Check, err error) {
	err = b.step("check "+command, func() error {
		out, err := b.Run(ctx, "exec 2>&1\n"+command)
		if len(out) > checkOutput {
			out = "…" + out[len(out)-checkOutput:]
		}
		c = Check{Command: command, Passed: err == nil, Output: out}
		switch exit, ended := errors.AsType[*ssh.ExitError](err); {
		case ended:
			c.Exit = exit.ExitStatus()
			return nil
		case errors.Is(err, machine.ErrLost): // also of a command that restarts the node
			c.Exit, c.Output = -1, strings.TrimSpace(c.Output+"\n"+machine.ErrLost.Error())
			return nil
		}
		return err
	})
	return c, err
}

// Fetched is how many bytes the machine has fetched from the registry, by requests that have ended.
func (b *Box) Fetched() int64 { return b.fetched.Load() }

// Probe asks the machine over its network, where it was opened with what is kept.
func (b *Box) Probe() *plug.Probe { return b.probe }
