// SPDX-License-Identifier: Apache-2.0

package track_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/oci/trust/rescue"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/attack"
	"github.com/caisson-os/caisson/test/fixture"
	"github.com/caisson-os/caisson/test/require"
)

// kinds are the documents that a node judges by their content, each by its repository and tag.
var kinds = map[string]struct{ repo, tag string }{
	"keys": {oci.RepoFleet, "keys-2"}, "current": {oci.RepoFleet, "current"}, "overlay": {oci.RepoNode, fixture.Node}, "rescue": {oci.RepoRescue, fixture.Node},
	"all": {}, // of them at once
}

// TestNextPlaceForEachDocument: one place serves a row's rubbish for a document and, as a thief
// or a full disk would, what is old for the others; the other place is honest. In each order the
// node follows the keys, knows the least generation, runs the newest generation and hears
// who is to be let in; and no place holds it for more than 10 s in all.
func TestNextPlaceForEachDocument(t *testing.T) {
	require.Slow(t)
	rows := attack.LoadClass[attack.Rubbish](t, "places")
	for kind := range kinds {
		p := newPlaces(t, kind)
		for _, order := range []string{"ill first", "ill on both sides"} {
			t.Run(kind+" "+order, func(t *testing.T) {
				t.Parallel()
				for _, row := range rows {
					t.Run(row.Name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { p.play(t, kind, order, row) }) })
				}
			})
		}
	}
}

const letInCode = "k7m2q-9xfab"

// places is an honest fleet, whose keys were rotated, and an ill place beside it.
type places struct {
	honest, ill, stranger *fixture.Fleet
	rescue                *ecdsa.PrivateKey
	anchor                []byte
	now                   time.Time
	operators             []string // of the boot files
}

func newPlaces(t *testing.T, kind string) *places {
	p := &places{honest: fixture.NewFleet(t), ill: fixture.NewFleet(t), stranger: fixture.NewFleet(t), rescue: fixture.NewKey(t)}
	root, stolen := fixture.NewKey(t), p.honest.Operator
	p.operators = fixture.RoleOf(stolen).Keys
	one := p.honest.FirstKeys(root)
	one.Roles.Rescue = fixture.RoleOf(p.rescue)
	p.anchor = p.honest.Anchor(one)
	p.honest.Operator = fixture.NewKey(t)
	two := p.honest.NextKeys(one, func(k *spec.Keys) {
		k.Roles.Operator, k.Reason = fixture.RoleOf(p.honest.Operator), "a laptop was stolen"
	})
	p.now = fixture.Now()
	publish := func(f *fixture.Fleet, generation, least, version uint64, by *ecdsa.PrivateKey, code string) {
		at := p.now.Add(time.Duration(generation) * time.Minute)
		f.Overlay(spec.Overlay{Items: spec.Items{Sysctl: []spec.Sysctl{{Key: "vm/swappiness", Value: fmt.Sprint(generation)}}}}, sign.Predicate{Generation: generation, IssuedAt: at})
		f.Current(spec.Fleet{Minimum: spec.Floor{Generation: least}, KeysVersion: version}, at)
		f.Rescue(spec.Rescue{Code: code, Console: true, Lasts: 60}, by)
	}
	// The ill place has what was honest before, or what the thief signs, who hides the keys.
	if p.ill.Operator = p.honest.Operator; kind == "keys" {
		p.ill.Operator = stolen
	}
	publish(p.ill, 8, 1, 1, p.rescue, "22222-22222")
	p.ill.Keys(one, root) // under its own name
	publish(p.honest, 9, 9, 2, p.rescue, letInCode)
	p.honest.Keys(two, root)
	publish(p.stranger, 10, 1, 2, fixture.NewKey(t), letInCode)
	p.stranger.Keys(two, fixture.NewKey(t))
	return p
}

func (p *places) play(t *testing.T, kind, order string, row attack.Rubbish) {
	list := []string{"ill.example", "honest.example"}
	if order == "ill on both sides" {
		list = append(list, "worse.example")
	}
	ill := p.answer(t, kind, row)
	dial := serveInMemory(t, map[string]http.Handler{"honest.example": handler(t, p.honest), "ill.example": ill, "worse.example": ill})
	b := spec.Bootstrap{APIVersion: spec.APIVersion, Kind: spec.KindBootstrap, Fleet: fixture.Name, PlainHTTP: true, Keys: p.operators, Threshold: 1, Chain: p.anchor}
	b.Registry = list[0] + "/metal-a"
	for _, m := range list[1:] {
		b.Mirrors = append(b.Mirrors, m+"/metal-a")
	}
	src, err := track.Open(b, track.Way{Dial: dial})
	if err != nil {
		t.Fatal(err)
	}
	folder, err := state.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	f := track.Tracker{Source: src, Folder: folder, Identity: trust.Identity{Node: fixture.Node}, Say: t.Logf, Bootstrap: b,
		RTC: func() time.Time { return p.now.Add(time.Hour / 2) }}
	from := time.Now()
	found, err := f.Sync(t.Context())
	if err != nil || found.Generation.Generation != 9 {
		t.Errorf("Sync = %+v, %v", found, err)
	}
	if k := f.Known(); k == nil || k.Version != 2 {
		t.Errorf("the node knows %+v", k)
	}
	if s, err := folder.Load(); err != nil || s.Fleet.Minimum.Generation != 9 || s.Fleet.Keys != 2 {
		t.Errorf("the node remembers %+v, %v", s.Fleet, err)
	}
	var in *rescue.Accepted
	err = trust.Rescue(t.Context(), src, f.Identity.Tags(), func(c trust.Candidate) (err error) {
		a, err := rescue.Node{Fleet: fixture.Name, Names: f.Identity.Tags(), Code: letInCode, Keys: fixture.RoleOf(p.rescue)}.Accept(c)
		if err == nil {
			in = a
		}
		return err
	})
	if err != nil || in == nil {
		t.Errorf("nobody is let in: %v", err)
	}
	if took, most := time.Since(from), time.Duration(len(list)-1)*10*time.Second; took > most {
		t.Errorf("it took %v, at most %v is right", took, most)
	}
	time.Sleep(time.Hour) // connections end
}

func handler(t *testing.T, f *fixture.Fleet) http.Handler {
	h, err := registry.Handler(f.Registry.Ref().Layout)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// answer serves a row for the documents of a kind, and what the ill place has for the others.
func (p *places) answer(t *testing.T, kind string, row attack.Rubbish) http.Handler {
	others := handler(t, p.ill)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		for name, k := range kinds {
			tag := strings.TrimSuffix(k.tag, "2") // any version of the keys
			if name != "all" && (kind == "all" || kind == name) && strings.Contains(req.URL.Path, "/"+k.repo+"/manifests/"+tag) {
				p.rubbish(t, w, req, name, row)
				return
			}
		}
		others.ServeHTTP(w, req)
	})
}

func (p *places) rubbish(t *testing.T, w http.ResponseWriter, req *http.Request, kind string, row attack.Rubbish) {
	body := []byte(row.Body)
	if row.As != "" {
		body = p.manifest(t, kind, row.As)
	}
	if row.Hang == "before" {
		<-req.Context().Done()
		return
	}
	w.Header().Set("Content-Type", oci.MediaTypeManifest)
	if row.Type != "" {
		w.Header().Set("Content-Type", row.Type)
	}
	if row.Status == http.StatusMovedPermanently {
		w.Header().Set("Location", "/elsewhere")
	}
	if row.Status != 0 {
		w.WriteHeader(row.Status)
	}
	_, _ = w.Write(body) // who asked may be gone
	if row.Hang == "" {
		return
	}
	_ = http.NewResponseController(w).Flush() // as above
	for req.Context().Err() == nil {
		if row.Hang == "trickle" {
			_, _ = w.Write([]byte(" ")) // as above
			_ = http.NewResponseController(w).Flush()
		}
		select {
		case <-req.Context().Done():
		case <-time.After(time.Second):
		}
	}
}

// manifest is that of the right document of a kind, made wrong.
func (p *places) manifest(t *testing.T, kind, as string) []byte {
	of := func(f *fixture.Fleet, kind string) ([]byte, []byte) {
		k := kinds[kind]
		resp, err := f.Registry.Source().Manifest(context.Background(), k.repo, k.tag, "")
		if errors.Is(err, oci.ErrNotFound) && kind == "keys" { // the one before
			resp, err = f.Registry.Source().Manifest(context.Background(), k.repo, "keys-1", "")
		}
		if err != nil {
			t.Error(err)
			return nil, nil
		}
		m, err := oci.ParseManifest(resp.Data)
		if err != nil {
			t.Error(err)
			return nil, nil
		}
		return resp.Data, m.Layers[0].Data
	}
	types := map[string]string{"keys": oci.TypeKeys, "current": oci.TypeFleet, "overlay": oci.TypeOverlay, "rescue": oci.TypeRescue}
	raw, document := of(p.honest, kind)
	switch as {
	case "half":
		return raw[:len(raw)/2]
	case "bare":
		m, err := oci.ParseManifest(raw)
		if err != nil {
			t.Error(err)
			return nil
		}
		for i := range m.Layers {
			m.Layers[i] = m.Layers[i].Bare()
		}
		return oci.Encode(*m)
	case "old":
		raw, _ = of(p.ill, kind)
	case "unsigned":
		raw, _ = oci.DocumentManifest(types[kind], document)
	case "stranger":
		raw, _ = of(p.stranger, kind)
	case "other":
		other := map[string]string{"keys": "current", "current": "overlay", "overlay": "keys", "rescue": "keys"}[kind]
		raw, _ = of(p.honest, other)
	default:
		t.Errorf("no document is %q", as)
	}
	return bytes.Clone(raw)
}

// serveInMemory serves hosts without a network, so that time can pass as it is waited for.
func serveInMemory(t *testing.T, hosts map[string]http.Handler) func(ctx context.Context, network, address string) (net.Conn, error) {
	t.Helper()
	listeners := map[string]*pipes{}
	for host, h := range hosts {
		l := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
		s := &http.Server{Handler: h}
		go func() { _ = s.Serve(l) }() // it says that it was closed
		t.Cleanup(func() { _ = s.Close() })
		listeners[host] = l
	}
	return func(ctx context.Context, _, address string) (net.Conn, error) {
		host, _, _ := strings.Cut(address, ":")
		here, there := net.Pipe()
		select {
		case listeners[host].conns <- there:
			return here, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// pipes is a listener of connections in memory.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{} }
