// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
)

// Trial says how a node did in a sandbox.
type Trial struct {
	Node             string      `json:"node"`
	Layer            string      `json:"layer"`
	Road             string      `json:"road"`               // what the loader came from: kernel, cd, disk
	Passed           bool        `json:"passed"`             // it came up, its health is ok, and its gates and checks hold
	Reason           string      `json:"reason,omitempty"`   // the first thing that is wrong
	Health           spec.Health `json:"health,omitempty"`   // none where the node was not asked
	SecureBoot       bool        `json:"secureBoot"`         // the machine says that its firmware verified what it started
	Gates            []string    `json:"gates"`              // names of the site's health checks
	Checks           []Check     `json:"checks"`             // in the order in which they were given
	FailedUnits      []string    `json:"failedUnits"`        // of systemd: they decide nothing by themselves
	Emulated         string      `json:"emulated,omitempty"` // why not by KVM
	Steps            []Step      `json:"steps"`
	ProcessorSeconds float64     `json:"processorSeconds"` // that the machine had
}

// Took says what took how long, of all.
func (t *Trial) Took(all time.Duration) string {
	parts := plain.Each(t.Steps, func(s Step) string {
		return plain.Sprintf("%s %.0f s (%.0f of a processor)", s.Name, s.Seconds, s.ProcessorSeconds)
	})
	return plain.Sprintf("took %.0f s: %s; the machine had %.0f s of a processor",
		all.Seconds(), strings.Join(parts, ", "), t.ProcessorSeconds)
}

// Questions say what is asked of a node that is tried.
type Questions struct {
	Checks []string                    // command lines, for root
	Within time.Duration               // from power-on until the gates are decided, and for each check
	Shell  func(context.Context) error // gives the node to a person in the end, and without checks at once; nil: to nobody
	Quote  func(said string)           // gets what the agent says of a node that is not well
}

// Try starts the machine and asks it. What is wrong with the node is in the result; an error is of
// the try itself.
func (b *Box) Try(ctx context.Context, q Questions) (*Trial, error) {
	t := &Trial{Node: b.node.Name, Layer: b.Layer(), Road: b.Road(), Gates: []string{}, Checks: []Check{}, FailedUnits: []string{}}
	if why := b.Emulated(); why != nil {
		t.Emulated = why.Error()
	}
	if err := t.ask(ctx, b, q); err != nil {
		return nil, err
	}
	t.Steps = b.Steps()
	used, err := b.Used()
	t.ProcessorSeconds = used.Seconds()
	return t, err
}

func (t *Trial) ask(ctx context.Context, b *Box, q Questions) error {
	var down *DownError
	limited, cancel := context.WithTimeout(ctx, q.Within)
	defer cancel()
	late := func(err error) bool { return err != nil && limited.Err() != nil && ctx.Err() == nil }
	if err := b.Start(ctx); err != nil {
		return err
	}
	switch err := b.LogIn(limited); {
	case errors.As(err, &down):
		t.Reason = down.Error()
		return nil
	case late(err):
		t.Reason = "the node accepted no login within " + q.Within.String()
		return nil
	case err != nil:
		return err
	}
	if q.Shell != nil && len(q.Checks) == 0 {
		t.Passed = true
		return q.Shell(ctx)
	}
	v, err := b.Settle(limited)
	if late(err) {
		t.Reason = "the gates were not decided within " + q.Within.String()
		return nil
	}
	if err != nil {
		return err
	}
	t.Passed, t.Reason, t.Health, t.SecureBoot = v.Passed, v.Reason, v.Health, v.Secure
	t.Gates, t.FailedUnits = append(t.Gates, v.Gates...), append(t.FailedUnits, v.Failed...)
	if v.Why != "" {
		q.Quote(v.Why)
	}
	for _, command := range q.Checks {
		one, cancel := context.WithTimeout(ctx, q.Within)
		c, err := b.Check(one, command)
		late := one.Err() != nil
		cancel()
		if err != nil && (ctx.Err() != nil || !late) {
			return err
		}
		if err != nil {
			c = Check{Command: command, Exit: -1, Output: "no answer within " + q.Within.String()}
		}
		t.Checks = append(t.Checks, c)
		if !c.Passed && t.Passed {
			t.Passed, t.Reason = false, "check "+command
		}
		if c.Exit < 0 {
			break // the connection is gone with it
		}
	}
	if q.Shell != nil {
		return q.Shell(ctx)
	}
	return nil
}

// MiB is an amount of memory: 2048, 2048M, 2G.
type MiB int

// Set implements pflag.Value.
func (m *MiB) Set(text string) error {
	number, unit := strings.TrimRight(text, "iB"), 1
	if before, ok := strings.CutSuffix(number, "G"); ok {
		number, unit = before, 1024
	} else {
		number = strings.TrimSuffix(number, "M")
	}
	n, err := strconv.Atoi(number)
	if err != nil || n < 0 || n > 1<<30/unit {
		return errors.New("neither MiB, as 2048, nor as 2G")
	}
	*m = MiB(n * unit)
	return nil
}

func (m *MiB) String() string { return strconv.Itoa(int(*m)) }

// Type implements pflag.Value.
func (m *MiB) Type() string { return "MIB" }
