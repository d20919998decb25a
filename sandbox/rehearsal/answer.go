// SPDX-License-Identifier: Apache-2.0

package rehearsal

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/evidence"
	"github.com/caisson-os/caisson/fleet/preview"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci/keys"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/sandbox"
	"github.com/caisson-os/caisson/sandbox/picture"
	"github.com/caisson-os/caisson/spec"
)

// End is one end of the way.
type End struct {
	Overlay string `json:"overlay"` // digest
	Layer   string `json:"layer"`   // digest
}

// Answer holds the findings of a rehearsal.
type Answer struct {
	Node     string               `json:"node"`
	From     End                  `json:"from"`
	To       End                  `json:"to"`
	Said     string               `json:"said"`             // the class that a plan says
	Why      string               `json:"why,omitempty"`    // of that class
	Happened string               `json:"happened"`         // the class that was seen; "" where the node did not arrive
	Passed   bool                 `json:"passed"`           // the node arrived, and came back
	Reason   string               `json:"reason,omitempty"` // why not
	Left     []picture.Difference `json:"left"`             // what did not come back
	Checks   []sandbox.Check      `json:"checks"`           // in the order in which they were given
	Silent   map[string]float64   `json:"silent"`           // seconds without an answer on the way there: ping, tcp/PORT
	Fetched  int64                `json:"fetched"`          // bytes on the way there
	Seconds  float64              `json:"seconds"`          // on the way there
	Emulated string               `json:"emulated,omitempty"`
	Steps    []sandbox.Step       `json:"steps"`
}

// AsSaid reports whether the node took the way that a plan says. What is seen from outside does
// not tell a change without effect from a live one, nor a start by firmware from another.
func (a *Answer) AsSaid() bool { return seen(a.Said) == a.Happened }

// Err returns the error with the exit code: 5 where the node failed, 3 where something does not
// come back, or the class differed.
func (a *Answer) Err() error {
	switch {
	case !a.Passed:
		return cli.ErrFailed
	case len(a.Left) > 0 || !a.AsSaid():
		return cli.ErrDrift
	}
	return nil
}

// Write prints the answer for people.
func (a *Answer) Write(w io.Writer) {
	says := "passed"
	if !a.Passed {
		says = "FAILED"
	}
	cli.Printf(w, "%s\t%s\t%s\n", says, a.Node, plain.Line(a.Reason))
	if a.Happened != "" {
		differs := ""
		if !a.AsSaid() {
			differs = "  DIFFERS"
		}
		cli.Printf(w, "class\t%s said, %s happened%s\n", a.Said, a.Happened, differs)
		cli.Printf(w, "took\t%.0f s, %s fetched\n", a.Seconds, plain.Bytes(a.Fetched))
		silent := plain.Each(slices.Sorted(maps.Keys(a.Silent)), func(name string) string {
			return fmt.Sprintf("%s %.1f s", name, a.Silent[name])
		})
		cli.Printf(w, "silent\t%s\n", strings.Join(silent, ", "))
	}
	for _, c := range a.Checks {
		cli.Printf(w, "check\t%s\t%s\n", map[bool]string{true: "passed", false: "FAILED"}[c.Passed], c.Command)
	}
	for _, d := range a.Left {
		cli.Printf(w, "left\t%s\n", plain.Line(d.String()))
	}
}

// marks tell one run of a machine from another.
type marks struct{ boot, root, kernel string }

// marks reads the id of the boot, the device of the root, and the kernel with its arguments.
func (w *walk) marks(ctx context.Context) (m marks, err error) {
	out, err := w.box.Run(ctx, "cat /proc/sys/kernel/random/boot_id; stat -c %d /; uname -r; cat /proc/cmdline")
	if err != nil {
		return m, err
	}
	lines := strings.SplitN(out, "\n", 3)
	if len(lines) != 3 {
		return m, fmt.Errorf("the machine does not say what it runs: %q", out)
	}
	return marks{lines[0], lines[1], lines[2]}, nil
}

// happened returns the class of what lies between two marks.
func happened(was, is marks) string {
	switch {
	case is.boot == was.boot && is.root == was.root:
		return spec.ClassLive
	case is.boot == was.boot:
		return spec.ClassSoftReboot
	case is.kernel != was.kernel:
		return spec.ClassKexec
	}
	return spec.ClassReboot
}

// seen returns the class as which one can be seen.
func seen(class string) string {
	switch {
	case spec.Live(class):
		return spec.ClassLive
	case class == spec.ClassCold:
		return spec.ClassReboot
	}
	return class
}

// Statement returns what may be signed of a rehearsal between two kept ends: also of one that
// failed, so that it takes the place of an earlier one that passed.
func (a *Answer) Statement(from, to *sandbox.Kept, on evidence.Machine, version string, now time.Time) (r evidence.Rehearsal, err error) {
	r = evidence.Rehearsal{Fleet: to.Overlay.Fleet, Result: evidence.Passed, Said: a.Said, Happened: a.Happened,
		Machine: on, Version: version, IssuedAt: now}
	switch err := a.Err(); {
	case errors.Is(err, cli.ErrFailed):
		r.Result, r.Reason = evidence.Failed, plain.Line(a.Reason)
	case err != nil:
		r.Result = evidence.Differs
		if !a.AsSaid() {
			r.Reason = fmt.Sprintf("class %s said, %s happened; ", a.Said, a.Happened)
		}
		r.Reason += fmt.Sprintf("%d did not come back", len(a.Left))
		for _, d := range a.Left[:min(1, len(a.Left))] {
			r.Reason += ": " + plain.Line(d.Kind+" "+d.Key)
		}
	}
	if r.From, err = evidence.EndOf(from.Overlay); err == nil {
		r.To, err = evidence.EndOf(to.Overlay)
	}
	return r, err
}

// Stating says where the signed statement of a rehearsal goes, and who signs it.
type Stating struct {
	File, Attest string // Attest is the source of the attestation key; the one beside the site when empty
	Push         bool
	Passphrase   keys.Passphrase

	Version string // of this program
	Now     func() time.Time
	Say     func(format string, args ...any)

	key crypto.Signer // nil where nothing is stated
}

// Open opens the key where something is to be stated, and refuses before a machine is booted what
// cannot be written, or would count for nothing.
func (x *Stating) Open(w *preview.Preview) (err error) {
	if x.File == "" && !x.Push {
		return nil
	}
	if err := cli.Writable("--statement", x.File); err != nil {
		return err
	}
	if found := keys.Beside(w.Site.Trust().Attestation); x.Attest == "" && len(found) > 0 {
		x.Attest = found[0]
		x.Say("the statement is signed with %s", x.Attest)
	}
	if x.Attest == "" {
		return cli.Usage("trust.keys.attestation of the site names whose statements count; 'caisson keys generate' makes keys",
			"no key to sign a statement with: give --attest-key")
	}
	if x.key, err = keys.Signer(x.Attest, &x.Passphrase); err != nil {
		return err
	}
	mine, err := sign.NewVerifier(x.key.Public())
	if err == nil && !slices.ContainsFunc(w.Policy.Attestation, func(k sign.Verifier) bool { return k.ID() == mine.ID() }) {
		err = cli.Usage("statements count by the keys in trust.keys.attestation of the site",
			"--attest-key is not an attestation key of the site")
	}
	return err
}

// Check refuses a statement about a layer that the registry does not have.
func (x *Stating) Check(to *sandbox.Kept) error {
	if to == nil && x.key != nil {
		return cli.Usage("'caisson build --to' pushes it first",
			"a statement is about a layer in the registry, and that of the site is not there")
	}
	return nil
}

// State signs what a rehearsal found, and brings it where it is to be.
func (x *Stating) State(ctx context.Context, box *sandbox.Box, answer *Answer, o Options) error {
	if x.key == nil {
		return nil
	}
	on, err := box.Machine(ctx)
	if err != nil {
		return err
	}
	r, err := answer.Statement(o.From, o.To, on, x.Version, x.Now())
	if err != nil {
		return err
	}
	bundle, err := r.Sign(x.key)
	if err != nil {
		return err
	}
	if x.File != "" {
		if err := durable.WriteFile(x.File, bundle, 0o644); err != nil {
			return err
		}
	}
	if !x.Push {
		return nil
	}
	if err := release.AttachRehearsal(ctx, o.To.From, r.To.Layer, bundle, r.IssuedAt); err != nil {
		return err
	}
	x.Say("stated at layer %s: %s", r.To.Layer, r.Result)
	return nil
}
