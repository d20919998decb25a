// SPDX-License-Identifier: Apache-2.0

package attest

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/caisson-os/caisson/fleet/audit"
	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
)

// Nodes keeps what is known of the quotes of nodes. What it returns is not changed.
type Nodes interface {
	// Quoted returns what is known of a node, nil where that is nothing, and whether the fleet has it.
	Quoted(node string) (*view.Quote, bool)
	// KeepQuote puts to in the place of from; act says by which operator, and what is for the node's history.
	KeepQuote(ctx context.Context, node string, from, to *view.Quote, act audit.Row) error
}

// Desk asks nodes for quotes, and says what they show.
type Desk struct {
	Nodes Nodes
	Known func(ctx context.Context, node string) (Known, error) // loaders and roots
	Now   func() time.Time
	Say   func(format string, args ...any)

	Authorities *x509.CertPool // a machine whose TPM one of them has certified is accepted by its first quote; nil: none is

	once    sync.Once
	waiting chan answer

	mu     sync.Mutex
	nonces map[string]given  // by nonce; one a node
	nodes  map[string]string // nonce by node
}

// given says to whom a nonce was given, and what that node reported then.
type given struct {
	node, key, boot, overlay, layer string
	ek                              []byte // that the nonce was sealed to; nil: it was not
	at                              time.Time
	answered                        bool // or begun to be
}

// answer is a quote that waits to be verified.
type answer struct {
	given
	nonce []byte
	quote *spec.Quote
}

const (
	quoteEvery = time.Hour
	nonceKept  = 5 * time.Minute // that an answer may take
	nonceAgain = 2 * time.Minute // until a node that brought none is asked again
	maxWaiting = 16
	verifyTime = 5 * time.Minute // of one quote: the registry is asked for what the node was given
)

// Errors of [Desk.Take].
var (
	ErrNonce = errors.New("the quote is over a nonce that was not given out, was answered, or is too old")
	ErrBusy  = errors.New("too many quotes wait to be verified")
)

func (d *Desk) init() {
	d.once.Do(func() {
		d.waiting = make(chan answer, maxWaiting)
		d.nonces, d.nodes = map[string]given{}, map[string]string{}
	})
}

// Nonce returns a nonce for the node of a report that counts, as [spec.NonceHeader] has it, "" where no
// quote of it is wanted now. There is one a node, so there are no more than nodes.
func (d *Desk) Nonce(r *spec.Report) string {
	d.init()
	q, has := d.Nodes.Quoted(r.Node)
	now := d.Now()
	if !has || !digest.Valid(r.TPM) || q != nil && q.Boot == r.BootID && q.Overlay == r.Overlay && q.Layer == r.Layer &&
		now.Sub(q.At).Abs() < quoteEvery {
		return ""
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if last, asked := d.nodes[r.Node]; asked {
		if now.Sub(d.nonces[last].at).Abs() < nonceAgain {
			return ""
		}
	}
	text, err := d.give(given{node: r.Node, key: r.TPM, boot: r.BootID, overlay: r.Overlay, layer: r.Layer, ek: boundTo(q, r.TPM), at: now})
	if err != nil {
		d.Say("nonce for %s: %v", r.Node, err)
	}
	return text
}

// give makes a nonce, in the place of the node's last one, and returns it as it is sent.
func (d *Desk) give(g given) (string, error) {
	nonce := make([]byte, spec.MaxNonce)
	rand.Read(nonce) // which never fails
	text := hex.EncodeToString(nonce)
	sent := text
	if len(g.ek) > 0 {
		var err error
		if sent, err = sealNonce(g.ek, g.key, nonce); err != nil {
			return "", err
		}
	}
	delete(d.nonces, d.nodes[g.node])
	d.nodes[g.node], d.nonces[text] = text, g
	return sent, nil
}

// Take takes the answer to a nonce. The body is read once the nonce is one that was given, and
// counts for it alone. Where it names the TPM that its key is in, and the nonce was not sealed to that,
// another one is wanted, over a nonce that is.
func (d *Desk) Take(nonce string, body io.Reader) (again string, err error) {
	d.init()
	g, err := d.redeem(nonce)
	if err != nil {
		return "", err
	}
	q, raw, err := g.read(nonce, body)
	if err != nil {
		return "", err
	}
	if len(g.ek) == 0 && len(q.EK) > 0 {
		d.mu.Lock()
		defer d.mu.Unlock()
		g.ek, g.answered = q.EK, false
		if again, err = d.give(g); err != nil {
			return "", fmt.Errorf("quote of %s: %w", g.node, err)
		}
		return again, nil
	}
	select {
	case d.waiting <- answer{g, raw, q}:
		return "", nil
	default:
		return "", ErrBusy
	}
}

// read reads an answer to a nonce that was given.
func (g given) read(nonce string, body io.Reader) (*spec.Quote, []byte, error) {
	data, err := io.ReadAll(io.LimitReader(body, spec.MaxQuote+1))
	if err == nil && len(data) > spec.MaxQuote {
		err = fmt.Errorf("the quote has more than %d bytes", spec.MaxQuote)
	}
	if err != nil {
		return nil, nil, err
	}
	q, err := spec.DecodeQuote(data)
	if err != nil {
		return nil, nil, err
	}
	raw, err := hex.DecodeString(nonce)
	if err == nil {
		err = signed(q, raw)
	}
	switch key := digest.Of(q.Key); {
	case err != nil:
		return nil, nil, fmt.Errorf("quote of %s: %w", g.node, err)
	case key != g.key:
		return nil, nil, fmt.Errorf("quote of %s: it is by key %s, and the node reports %s", g.node, key, g.key)
	case len(g.ek) > 0 && !bytes.Equal(g.ek, q.EK):
		return nil, nil, fmt.Errorf("quote of %s: it names another endorsement key than its nonce was sealed to", g.node)
	}
	return q, raw, nil
}

// redeem returns to whom a nonce was given, once.
func (d *Desk) redeem(nonce string) (given, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	g, is := d.nonces[nonce]
	switch {
	case !is || g.answered || d.Now().Sub(g.at).Abs() > nonceKept:
		return g, ErrNonce
	case len(d.waiting) == cap(d.waiting):
		return g, ErrBusy
	}
	g.answered = true // that it was given at all still holds the next one back
	d.nonces[nonce] = g
	return g, nil
}

// Run verifies what was taken, one after another, until ctx ends.
func (d *Desk) Run(ctx context.Context) {
	d.init()
	for {
		select {
		case <-ctx.Done():
			return
		case a := <-d.waiting:
			within, cancel := context.WithTimeout(ctx, verifyTime)
			if err := d.settle(within, a); err != nil && ctx.Err() == nil {
				d.Say("quote of %s: %v", a.node, err)
			}
			cancel()
		}
	}
}

// settle verifies an answer, and keeps what came of it.
func (d *Desk) settle(ctx context.Context, a answer) error {
	from, has := d.Nodes.Quoted(a.node)
	if !has {
		return nil
	}
	known, err := d.Known(ctx, a.node)
	if err != nil {
		return err // it is asked again
	}
	to := &view.Quote{At: a.at, Boot: a.boot, Overlay: a.overlay, Layer: a.layer, State: view.NotAccepted}
	known.Runs, known.EK = &Running{a.overlay, a.layer}, a.ek
	var uncertified error
	if from == nil || from.Accepted == nil {
		uncertified = d.certify(&known, a.quote)
	} else {
		to.Accepted, to.State = from.Accepted, view.Changed
		known.addAccepted(to.Accepted)
	}
	v := Verify(a.quote, a.nonce, known)
	to.Seen, to.Why = v.Machine, v.Why
	if uncertified != nil {
		to.Why += "; " + uncertified.Error()
	}
	if v.Attested {
		to.State, to.Accepted, to.Seen = view.Attested, v.Machine, nil
	}
	what := ""
	if from == nil || from.State != to.State || from.Why != to.Why {
		what = plain.With("its TPM: "+string(to.State), ": ", to.Why)
	}
	return d.Nodes.KeepQuote(ctx, a.node, from, to, audit.Row{Said: what})
}

// Accept makes what a node's last quote showed what it has to be. id names that, since the node
// may have shown something else since somebody looked. The node's next quote counts by it.
func (d *Desk) Accept(ctx context.Context, node, id, by string) error {
	q, _ := d.Nodes.Quoted(node)
	if q == nil || q.Seen == nil || q.Seen.ID() != id {
		return &NotOffered{node, id}
	}
	to := &view.Quote{Accepted: q.Seen}
	return d.Nodes.KeepQuote(ctx, node, q, to, audit.Row{Who: by, Said: id})
}

// NotOffered says that no quote showed what somebody wants to accept.
type NotOffered struct{ Node, ID string }

func (e *NotOffered) Error() string {
	return fmt.Sprintf("the last quote of %s did not show %.80q, or that is accepted", e.Node, e.ID)
}
