// SPDX-License-Identifier: Apache-2.0

package tpmtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/tpm"
	"github.com/caisson-os/caisson/fleet/attest"
	"github.com/caisson-os/caisson/fleet/audit"
	"github.com/caisson-os/caisson/fleet/report"
	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/spec"
)

// overlay is what the node reports, on the layer that it entered last.
var overlay = digest.Of([]byte("overlay"))

// desk asks one node, n, which a fleet of one has, and keeps what comes of it.
type desk struct {
	*testing.T
	attest.Desk
	node  view.Node
	known attest.Known
	now   time.Time
	kept  chan string // what is for the node's history
}

func (d *desk) Quoted(node string) (*view.Quote, bool) { return d.node.Quote, node == "n" }

func (d *desk) KeepQuote(_ context.Context, _ string, from, to *view.Quote, act audit.Row) error {
	if from != d.node.Quote {
		return errors.New("another came")
	}
	d.node.Quote = to
	if act.Who == "" {
		d.kept <- act.Said
	}
	return nil
}

func newDesk(t *testing.T, l *tpm.Log) *desk {
	d := &desk{T: t, known: known(), now: time.Unix(1790000000, 0), kept: make(chan string, 1)}
	at := attest.Root{Layer: "sha256:m", Core: "sha256:d"}
	root := d.known.Roots[at]
	root.Overlays = []string{overlay}
	d.known.Roots[at] = root
	d.Desk = attest.Desk{Nodes: d, Say: t.Errorf, Now: func() time.Time { return d.now },
		Known: func(context.Context, string) (k attest.Known, err error) {
			k = attest.Known{Node: d.known.Node, Roots: d.known.Roots}
			k.AddLoaders(d.known)
			return k, nil
		}}
	d.node.Report = view.NewBrief(d.reports(l))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { d.Desk.Run(ctx); close(ended) }()
	t.Cleanup(func() { stop(); <-ended })
	return d
}

// reports is what the machine of a log reports.
func (d *desk) reports(l *tpm.Log) *spec.Report {
	d.Helper()
	key, err := l.Key()
	if err != nil {
		d.Fatal(err)
	}
	return &spec.Report{Node: "n", Fleet: "f", BootID: "b1", Overlay: overlay, Layer: "sha256:m", TPM: key}
}

// sends brings a quote of the machine over a nonce.
func (d *desk) sends(l *tpm.Log, nonce string) error {
	d.Helper()
	raw, err := hex.DecodeString(nonce)
	if err != nil {
		d.Fatal(err)
	}
	text, err := spec.Encode(quotedWith(d.T, l, raw))
	if err != nil {
		d.Fatal(err)
	}
	return d.takes(nonce, bytes.NewReader(text))
}

// takes is for nodes that name no TPM, so that no other quote is wanted.
func (d *desk) takes(nonce string, body io.Reader) error {
	d.Helper()
	again, err := d.Take(nonce, body)
	if again != "" {
		d.Errorf("another quote is wanted: %q", again)
	}
	return err
}

// quotes has the node quote, which is wanted, and returns what is known of it then.
func (d *desk) quotes(l *tpm.Log) (view.Attestation, string) {
	d.Helper()
	d.now = d.now.Add(61 * time.Minute)
	d.node.Received = d.now
	nonce := d.Nonce(d.reports(l))
	if nonce == "" {
		d.Fatal("no quote is wanted")
	}
	if err := d.sends(l, nonce); err != nil {
		d.Fatal(err)
	}
	<-d.kept
	return d.node.Attestation(d.now)
}

func (d *desk) wants(l *tpm.Log, word view.Attestation, why string) {
	d.Helper()
	if is, says := d.quotes(l); is != word || !strings.HasPrefix(says, why) {
		d.Errorf("%s: %s; want %s: %s", is, says, word, why)
	}
}

// TestDesk: a node quotes, an operator accepts what it showed, and it is attested, until what it
// boots is changed; without a quote for three hours it is stale, and without its TPM downgraded.
func TestDesk(t *testing.T) {
	l := machine(t, Start(t), usual)
	quoted(t, l, events...)
	d := newDesk(t, l)
	is := func(word view.Attestation, why string) {
		t.Helper()
		if got, says := d.node.Attestation(d.now); got != word || !strings.HasPrefix(says, why) {
			t.Errorf("%s: %s; want %s: %s", got, says, word, why)
		}
	}
	is(view.Stale, "it has not quoted yet")
	d.wants(l, view.NotAccepted, "nobody has accepted")
	if err := d.Accept(t.Context(), "n", digest.Of([]byte("other")), "eve"); err == nil || !strings.Contains(err.Error(), "did not show") {
		t.Error(err)
	}
	if err := d.Accept(t.Context(), "n", d.node.Offers().ID(), "eve"); err != nil {
		t.Fatal(err)
	}
	is(view.Stale, "it has not quoted yet")
	d.wants(l, view.Attested, "")
	if r, _ := report.Last(&d.node); d.node.Offers() != nil || r.Attested != overlay {
		t.Errorf("%+v", r)
	}
	if d.now = d.now.Add(59 * time.Minute); d.Nonce(d.reports(l)) != "" {
		t.Error("a quote is wanted before an hour has passed")
	}
	d.now = d.now.Add(3 * time.Hour)
	is(view.Stale, "its last quote is of ")
	d.wants(l, view.Attested, "")
	d.node.Report.Overlay = digest.Of([]byte("next"))
	is(view.Stale, "its last quote is of what it ran before")
	d.node.Report.Overlay = overlay
	d.node.Report.BootID = "b2"
	is(view.Stale, "its last quote is of what it ran before")
	d.node.Report.BootID = "b1"
	d.node.Report.Layer = "sha256:l"
	is(view.Stale, "its last quote is of what it ran before")
	d.node.Report.Layer = "sha256:m"
	for _, says := range []string{"", spec.NoTPM} {
		d.node.Report.TPM = says
		is(view.Downgraded, "it was accepted with the TPM's key "+d.node.Quote.Accepted.Key)
	}
	d.node.Report.TPM = digest.Of([]byte("another"))
	is(view.Changed, "it reports the TPM's key ")
	d.node.Report.TPM = d.node.Quote.Accepted.Key
	d.now = d.now.Add(61 * time.Minute)
	says := d.reports(l)
	says.Overlay = digest.Of([]byte("next"))
	d.node.Report = view.NewBrief(says)
	if err := d.sends(l, d.Nonce(says)); err != nil {
		t.Fatal(err)
	}
	<-d.kept
	is(view.Changed, "it reports overlay "+says.Overlay)
	d.node.Report = view.NewBrief(d.reports(l))
	d.wants(l, view.Attested, "")
	l.Add(spec.Measured{Event: spec.MeasuredSoftReboot, Layer: "sha256:x", Core: "sha256:y"})
	d.wants(l, view.Changed, "unknown event: soft-reboot: this node was not given")
	d.node.Quote = nil
	d.node.Report.TPM = spec.NoTPM
	is(view.NoTPM, "")
}

// TestADeskIsNotFooled: what counts is one answer to one nonce, by the key that the node reported.
func TestADeskIsNotFooled(t *testing.T) {
	l := machine(t, Start(t), usual)
	quoted(t, l, events...)
	other := machine(t, Start(t), usual)
	quoted(t, other, events...)
	d := newDesk(t, l)
	refused := func(what string, err error, why string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("a nonce that nobody gave", d.sends(l, strings.Repeat("07", spec.MaxNonce)), "not given out")
	nonce := d.Nonce(d.reports(l))
	if d.Nonce(d.reports(l)) != "" {
		t.Error("two nonces for one node")
	}
	refused("another machine's quote", d.sends(other, nonce), "it is by key "+digest.Of(quotedWith(t, other, make([]byte, 16)).Key))
	refused("an answered nonce", d.sends(l, nonce), "was answered")
	if d.Nonce(d.reports(l)) != "" {
		t.Error("a nonce with each report of a node whose quotes are refused")
	}
	d.now = d.now.Add(3 * time.Minute)
	if nonce = d.Nonce(d.reports(l)); nonce == "" {
		t.Fatal("no second nonce")
	}
	d.now = d.now.Add(6 * time.Minute)
	refused("an old nonce", d.sends(l, nonce), "too old")
	nonce = d.Nonce(d.reports(l))
	text, err := spec.Encode(quotedWith(t, l, bytes.Repeat([]byte{9}, 32)))
	if err != nil {
		t.Fatal(err)
	}
	refused("a quote played back", d.takes(nonce, bytes.NewReader(text)), "another nonce")
	d.now = d.now.Add(10 * time.Minute)
	refused("too much", d.takes(d.Nonce(d.reports(l)), io.LimitReader(zeros{}, spec.MaxQuote+1)), "more than")
	for what, change := range map[string]func(*spec.Report){"a stranger": func(r *spec.Report) { r.Node = "m" }, "no TPM": func(r *spec.Report) { r.TPM = spec.NoTPM },
		"an agent of before": func(r *spec.Report) { r.TPM = "" }} {
		r := d.reports(l)
		if change(r); d.Nonce(r) != "" {
			t.Errorf("%s gets a nonce", what)
		}
	}
	if d.node.Quote != nil {
		t.Errorf("kept %+v", d.node.Quote)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// TestALoaderIsUpdated: the loader that fleet:current names takes the place of the accepted one
// without an operator, the one before counts no more, and a loader of nobody never does.
func TestALoaderIsUpdated(t *testing.T) {
	open, again := Switched(t)
	l := machine(t, open, usual)
	quoted(t, l, events...)
	d := newDesk(t, l)
	program := func(name string) attest.Register { return sha256.Sum256([]byte(name)) }
	stub := func(name string) attest.Register { return spec.Extend(attest.Register{}, sha256.Sum256([]byte(name))) }
	names := func(loader string) { // fleet:current names it alone
		d.known.Loaders, d.known.Programs = nil, nil
		d.known.AddLoader(loader, stub(loader), program(loader+" program"))
	}
	boots := func(loader string) *tpm.Log {
		t.Helper()
		again()
		l := machine(t, open, slices.Concat(usual[:3], []event{{4, loader + " program"}, {7, "keys"}, {11, loader}}))
		quoted(t, l, events...)
		return l
	}
	names("first")
	l = boots("first")
	d.node.Report = view.NewBrief(d.reports(l))
	d.wants(l, view.NotAccepted, "")
	if err := d.Accept(t.Context(), "n", d.node.Offers().ID(), "eve"); err != nil {
		t.Fatal(err)
	}
	d.wants(l, view.Attested, "")
	names("second")
	d.wants(l, view.Attested, "") // until it boots that
	d.wants(boots("second"), view.Attested, "")
	d.wants(boots("first"), view.Changed, "unknown event: what the firmware started, of register 4")
	d.wants(boots("third"), view.Changed, "unknown event: what the firmware started, of register 4")
	names("third")
	d.wants(boots("third"), view.Attested, "")
}
