// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/attest"
	"github.com/caisson-os/caisson/fleet/commits"
	"github.com/caisson-os/caisson/fleet/hub"
	"github.com/caisson-os/caisson/fleet/index"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/rollout"
	"github.com/caisson-os/caisson/fleet/server"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/media"
	"github.com/caisson-os/caisson/spec/refusal"
)

// reading holds what the fleet's service has read of its registry beside the index.
type reading struct {
	fleet atomic.Pointer[publish.Fleet] // as it was read last
	sent  *commits.Sent                 // nil: what overlays bring is not read

	loaders map[string]attest.Known // by digest, what each leaves in a TPM; one question at a time
}

// known returns what a node may have booted: what it was given, by the loaders that fleet:current
// names for disks.
func (r *reading) known(ctx context.Context, node string) (known attest.Known, err error) {
	f := r.fleet.Load()
	if f == nil {
		return known, errors.New("what is published could not be read yet")
	}
	known.Node = node
	now := map[string]attest.Known{}
	for _, l := range f.Loaders() {
		one, read := r.loaders[l.Image.Digest]
		if !read {
			image, err := f.Loader(ctx, l)
			if err != nil {
				return known, fmt.Errorf("loader %d: %w", l.Number, err)
			}
			stub, programs, err := media.Measure(image)
			if err != nil {
				return known, fmt.Errorf("loader %d: %w", l.Number, err)
			}
			one.AddLoader(fmt.Sprintf("loader %d", l.Number), stub, programs...)
		}
		now[l.Image.Digest] = one
		known.AddLoaders(one)
	}
	r.loaders = now
	known.Roots, err = attest.Given(ctx, f, node)
	return known, err
}

// readAuthorities reads files of certificates, each with at least one. Without files nobody is named: nil.
func readAuthorities(names []string) (pool *x509.CertPool, err error) {
	for _, name := range names {
		text, err := ownfiles.ReadPublic(name, maxAuthorities)
		if err != nil {
			return nil, fmt.Errorf("--tpm-authority: %w", err)
		}
		if pool == nil {
			pool = x509.NewCertPool()
		}
		if !pool.AppendCertsFromPEM(text) {
			return nil, cli.WithHint(fmt.Errorf("--tpm-authority %s: there is no certificate in it", name),
				"it begins with -----BEGIN CERTIFICATE-----; 'openssl x509 -inform DER -in FILE' makes that of one in DER")
		}
	}
	return pool, nil
}

const maxAuthorities = 1 << 20 // bytes of a file

// layer returns a layer, verified as what is published is.
func (r *reading) layer(ctx context.Context, digest string) (release.Layer, error) {
	f := r.fleet.Load()
	if f == nil {
		return release.Layer{}, errors.New("what is published could not be read yet")
	}
	return f.Layer(ctx, digest)
}

// fleetIndex returns how what is published is read, again each time, and some of what nodes were
// sent of services and windows.
func (a *app) fleetIndex(v *serving, to *reading) hub.Index {
	var rows index.Rows
	var root string
	return func(ctx context.Context, known string) (hub.Published, error) {
		f, err := v.look.read(ctx, a, v.from)
		if err != nil {
			return hub.Published{}, v.hinted(err)
		}
		to.fleet.Store(f)
		p := hub.Published{Fleet: f.Policy().Fleet, Floor: f.Floor(), Root: f.Root()}
		if p.Unfinished, err = f.Unfinished(ctx); err != nil {
			return p, err
		}
		if p.Root != root {
			if rows, err = f.Nodes(ctx); err != nil {
				return p, err
			}
			root = p.Root
		}
		most := commits.AtOnce
		if p.Root != known {
			most = commits.AtFirst
		}
		if to.sent != nil {
			to.sent.Read(ctx, f, rows, plain.Names(maps.Keys(rows)), most)
		}
		if p.Root == known {
			return p, nil
		}
		names, err := v.look.whom.names(a)
		if err != nil {
			return p, err
		}
		for _, id := range f.SignedBy() {
			p.SignedBy = append(p.SignedBy, cmp.Or(names[id], id))
		}
		p.Rows = rows
		p.Rollouts, err = rollout.States(ctx, f)
		return p, err
	}
}

// hinted adds to an error what a service that was given keys alone can do about others: it is
// told in the log and on pages, which have no hints.
func (v *serving) hinted(err error) error {
	if len(v.look.whom.keys) == 0 || refusal.Of(err) != refusal.UnknownKey {
		return err
	}
	return fmt.Errorf("%w; --trust names the only keys that this service knows: start it again with those that count "+
		"now, or with --site, by which it follows a change of keys that the root key signed", err)
}

// names are the words of commands on the service's pages: as many keys sign as must.
func (v *serving) names() server.Names {
	s := v.look.whom.loaded // nil: there is none
	if v.site != nil {
		s = v.site.Now()
	}
	if s == nil {
		return server.NamesOf("", nil, v.look.whom.keys)
	}
	operators := s.Trust().Operator
	return server.NamesOf(s.Dir(), v.look.whom.site, operators[:min(len(operators), max(1, s.Trust().Threshold))])
}
