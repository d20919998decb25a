// SPDX-License-Identifier: Apache-2.0

package tpmtest

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/tell/post"
	"github.com/caisson-os/caisson/fleet/attest"
	"github.com/caisson-os/caisson/fleet/audit"
	"github.com/caisson-os/caisson/fleet/hub"
	"github.com/caisson-os/caisson/fleet/index"
	"github.com/caisson-os/caisson/fleet/query"
	"github.com/caisson-os/caisson/fleet/server"
	"github.com/caisson-os/caisson/fleet/store"
	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
)

// service is a fleet's, of one node n.
type service struct {
	*testing.T
	hub   *hub.Hub
	url   string
	ahead atomic.Int64 // of the clock, in nanoseconds
}

func (s *service) now() time.Time { return time.Now().Add(time.Duration(s.ahead.Load())) }

func newService(t *testing.T) *service {
	t.Helper()
	db, err := store.Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "fleet.db"))
	if err != nil {
		t.Fatal(err)
	}
	s := &service{T: t}
	layer := digest.Of([]byte("layer"))
	s.hub, err = hub.Open(t.Context(), hub.Options{Store: db, Say: t.Logf, Now: s.now, Index: func(context.Context, string) (hub.Published, error) {
		return hub.Published{Fleet: "f", Root: "r", Rows: index.Rows{"n": {Overlay: overlay, Layer: layer, Generation: 7}}}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	k := known()
	k.Roots[attest.Root{Layer: layer, Core: "sha256:d"}] = attest.Layer{Overlays: []string{overlay}}
	desk := &attest.Desk{Nodes: s.hub, Now: s.now, Say: t.Logf, Known: func(context.Context, string) (attest.Known, error) { return k, nil }}
	ctx, stop := context.WithCancel(context.Background())
	h, err := server.New(ctx, server.Options{Fleet: query.Fleet{Hub: s.hub}, Quotes: desk, Hosts: []string{"127.0.0.1"}, Names: func() query.Names { return query.Names{} }, Say: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	at := httptest.NewServer(h)
	s.url = at.URL
	ended := make(chan error, 2)
	go func() { ended <- s.hub.Run(ctx) }()
	go func() { desk.Run(ctx); ended <- nil }()
	t.Cleanup(func() {
		at.Close()
		stop()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// get returns an answer of the service.
func (s *service) get(path string) string {
	s.Helper()
	resp, err := http.Get(s.url + path)
	if err != nil {
		s.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.Fatal(err)
	}
	return string(text)
}

// is waits until the service says a word of the node.
func (s *service) is(word view.Attestation) *view.Node {
	s.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		n := s.hub.Nodes()[0].Node
		switch got, why := n.Attestation(s.now()); {
		case got == word:
			return n
		case time.Now().After(end):
			s.Fatalf("%s: %s; want %s", got, why, word)
		}
	}
}

// send sends a letter as package fetch does.
func send(ctx context.Context, l post.Letter) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.URL, bytes.NewReader(l.Body))
	if err != nil {
		return err
	}
	for name, value := range l.Header {
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		text, err := io.ReadAll(resp.Body)
		return fmt.Errorf("%s: %s %w", resp.Status, text, err)
	}
	if l.Answer != nil {
		l.Answer.WriteString(resp.Header.Get(spec.NonceHeader))
	}
	return nil
}

// TestANodeIsAttested: from the node's report over its quote and the operator's word to what the
// service shows.
func TestANodeIsAttested(t *testing.T) {
	s := newService(t)
	l := machine(t, Start(t), usual)
	layer := digest.Of([]byte("layer"))
	l.Add(spec.Measured{Event: spec.MeasuredStack, Layer: layer, Core: "sha256:d"})
	p := &post.Post{TPM: l, By: send, Say: t.Errorf, Tracker: &track.Tracker{Identity: trust.Identity{Node: "n"}}}
	key, err := sign.Generate()
	if err != nil {
		t.Fatal(err)
	}
	named, err := l.Key()
	if err != nil {
		t.Fatal(err)
	}
	seq := uint64(0)
	reports := func(change func(*spec.Report)) {
		t.Helper()
		seq++
		r := spec.NewReport(&spec.Status{Fleet: "f", Node: "n", BootID: "b", Mode: spec.ModeNetboot, Health: spec.HealthOK, Overlay: overlay, Layer: layer})
		r.Key, r.Grade, r.Seq, r.Interval, r.TPM, r.Time = sign.VerifierOf(key).ID(), spec.KeyPinned, seq, 300, named, time.Now()
		if change != nil {
			change(r)
		}
		data, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		raw, err := sign.SignReport(key, data)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Post(t.Context(), spec.Reporting{URL: s.url}, raw); err != nil {
			t.Fatal(err)
		}
	}
	reports(nil)
	n := s.is(view.NotAccepted)
	d, err := s.hub.Node(t.Context(), "n")
	if err != nil || d.Machine == nil || d.Machine.Key != named || d.Machine.ID != n.Offers().ID() {
		t.Fatalf("%+v, %v", d, err)
	}
	if page := s.get("/nodes/n"); !strings.Contains(page, "caisson fleet accept n "+d.Machine.ID) || !strings.Contains(page, "not-accepted") {
		t.Error(page)
	}
	q, _ := s.hub.Quoted("n")
	desk := attest.Desk{Nodes: s.hub, Now: time.Now}
	if err := desk.Accept(t.Context(), "n", d.Machine.ID, "eve"); err != nil {
		t.Fatal(err)
	}
	if err := s.hub.KeepQuote(t.Context(), "n", q, q, audit.Row{}); err == nil {
		t.Error("what an operator accepted was written over")
	}
	s.is(view.Stale)
	s.ahead.Add(int64(3 * time.Minute)) // the first nonce was given just now
	reports(nil)
	s.is(view.Attested)
	if n, err := s.hub.Node(t.Context(), "n"); err != nil || n.Machine != nil || n.History[0].What != "its TPM: attested" {
		t.Errorf("%+v, %v", n, err)
	}
	if text := s.get("/metrics"); !strings.Contains(text, `caisson_fleet_nodes_attested{state="attested"} 1`) {
		t.Error(text)
	}
	reports(func(r *spec.Report) { r.TPM = spec.NoTPM })
	s.is(view.Downgraded)
	if text := s.get("/v1/nodes?most=1"); !strings.Contains(text, `"tpm":"downgraded","tpmWhy":"it was accepted with the TPM's key `+named) {
		t.Error(text)
	}
}

// TestAServicePicksNonces: a node answers any nonce of the service that it reports to, by a key that signs
// quotes alone, and nothing that is none; the report is taken all the same.
func TestAServicePicksNonces(t *testing.T) {
	l := machine(t, Start(t), usual)
	for given, answers := range map[string]bool{strings.Repeat("00", spec.MinNonce): true, strings.Repeat("ff", spec.MaxNonce): true,
		"": false, "00": false, strings.Repeat("00", spec.MaxNonce+1): false, "../../etc/passwd": false} {
		var quote *spec.Quote
		said := ""
		p := &post.Post{TPM: l, Say: func(format string, args ...any) { said = fmt.Sprintf(format, args...) }, Tracker: &track.Tracker{Identity: trust.Identity{Node: "n"}},
			By: func(_ context.Context, l post.Letter) (err error) {
				if !strings.HasSuffix(l.URL, spec.QuotePath) {
					l.Answer.WriteString(given)
					return nil
				}
				quote, err = spec.DecodeQuote(l.Body)
				return err
			}}
		if err := p.Post(t.Context(), spec.Reporting{URL: "https://fleet.example"}, []byte("report")); err != nil || (quote != nil) != answers || (said == "") != (answers || given == "") {
			t.Errorf("%q: %v, %v, said %q", given, err, quote, said)
		}
		if !answers {
			continue
		}
		nonce, err := hex.DecodeString(given)
		if err != nil {
			t.Fatal(err)
		}
		if v := attest.Verify(quote, nonce, known()); v.Key == "" {
			t.Error(v.Why)
		}
	}
}
