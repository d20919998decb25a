// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/attest"
	"github.com/caisson-os/caisson/fleet/commits"
	"github.com/caisson-os/caisson/fleet/hub"
	"github.com/caisson-os/caisson/fleet/index"
	"github.com/caisson-os/caisson/fleet/people"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/rollout"
	"github.com/caisson-os/caisson/fleet/server"
	"github.com/caisson-os/caisson/fleet/webhook"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/media"
	"github.com/caisson-os/caisson/oci"
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

// peopleFlags say at which provider people log in to the fleet's service.
type peopleFlags struct {
	issuer, client, secret, claim string
	groups                        []string
	session                       time.Duration
}

func (p *peopleFlags) flags(f *pflag.FlagSet) {
	f.StringVar(&p.issuer, "oidc-issuer", "", "`URL` of an OpenID provider where people log in, beside tokens")
	f.StringVar(&p.client, "oidc-client", "caisson", "this service's client id there")
	f.StringVar(&p.secret, "oidc-secret", "", "`FILE` with the client's secret, mode 0600 (none for a public client)")
	f.StringVar(&p.claim, "oidc-claim", "groups", "claim that lists a person's groups")
	f.StringArrayVar(&p.groups, "oidc-group", nil, "`ROLE=GROUP`: what people of a group may do, reader or operator")
	f.DurationVar(&p.session, "oidc-session", time.Hour, "how long a login lasts: so long may a person who has left go on")
}

// open returns who may log in, nil where no provider is named.
func (p *peopleFlags) open(o *server.Options, opened string) (*server.People, error) {
	if p.issuer == "" {
		return nil, nil
	}
	u, err := url.Parse(p.issuer)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && !(u.Scheme == "http" && (oci.Ref{Host: u.Host}).Loopback()):
		return nil, cli.Usage("as in --oidc-issuer https://id.example.org", "--oidc-issuer %q is not https:// with a name", p.issuer)
	case o.Tokens == nil:
		return nil, cli.Usage("give --tokens: nodes and programs have no person", "--oidc-issuer without --tokens")
	case p.session < time.Minute || p.session > 24*time.Hour:
		return nil, cli.Usage("", "--oidc-session %v is not between a minute and a day", p.session)
	}
	groups, err := server.ParseGroups(p.groups)
	if err != nil {
		return nil, cli.Usage("as in --oidc-group operator=ops", "--oidc-group: %w", err)
	}
	if len(groups) == 0 {
		return nil, cli.Usage("as in --oidc-group operator=ops", "--oidc-issuer without --oidc-group: nobody could do anything")
	}
	secret := ""
	if p.secret != "" {
		text, err := ownfiles.ReadLinked(p.secret)
		if err != nil {
			return nil, fmt.Errorf("--oidc-secret: %w", err)
		}
		secret = strings.TrimSpace(string(text))
	}
	provider, err := people.New(people.Options{Issuer: p.issuer, Client: p.client, Secret: secret, Claim: p.claim,
		Callback: cmp.Or(o.URL, opened) + server.BackPath})
	if err != nil {
		return nil, err
	}
	return &server.People{Provider: provider, Groups: groups, Session: p.session}, nil
}

// hookFlags say whom the fleet's service tells what changed.
type hookFlags struct {
	urls   []string
	secret string
}

// hookEvery is how often a fleet is compared with what it was.
const hookEvery = 5 * time.Second

func (h *hookFlags) flags(f *pflag.FlagSet) {
	f.StringArrayVar(&h.urls, "webhook", nil, "`URL` that is sent what changed, signed by --webhook-secret")
	f.StringVar(&h.secret, "webhook-secret", "", "`FILE` with the secret that signs, mode 0600: whsec_ and at least 24 bytes in base64")
}

// open returns whom to tell.
func (h *hookFlags) open(say func(string, ...any)) (all []*webhook.Receiver, err error) {
	if len(h.urls) == 0 {
		return nil, nil
	}
	if h.secret == "" {
		return nil, cli.Usage("'echo whsec_$(head -c 32 /dev/urandom | base64)' makes one",
			"--webhook without --webhook-secret: nobody could tell its messages from others")
	}
	text, err := ownfiles.ReadLinked(h.secret)
	if err != nil {
		return nil, fmt.Errorf("--webhook-secret: %w", err)
	}
	secret, err := webhook.ParseSecret(string(text))
	if err != nil {
		return nil, cli.Usage("'echo whsec_$(head -c 32 /dev/urandom | base64)' makes one", "--webhook-secret %s: %w", h.secret, err)
	}
	for _, text := range h.urls {
		u, err := url.Parse(text)
		if err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && !(u.Scheme == "http" && (oci.Ref{Host: u.Host}).Loopback()) {
			return nil, cli.Usage("as in --webhook https://chat.example.org/hook", "--webhook %q is not https:// with a name and no user", text)
		}
		all = append(all, webhook.To(u, secret, say))
	}
	return all, nil
}

// actsAtOnce is how many rows of the audit log one look reads.
const actsAtOnce = 1000

// hooked is a fleet as webhooks see it.
type hooked struct{ *hub.Hub }

// Elsewhere implements [webhook.Fleet].
func (h hooked) Elsewhere() bool { return errors.Is(h.WriteError(), hub.ErrReadOnly) }

// See implements [webhook.Fleet].
func (h hooked) See(ctx context.Context, last int64) (s webhook.Seen, seq int64, err error) {
	s = webhook.Seen{At: h.Now(), Nodes: map[string]webhook.Is{}, Rollouts: map[string]string{}}
	for _, n := range h.Nodes() {
		condition, why := n.Is()
		s.Nodes[n.Name] = webhook.Is{Condition: string(condition), Why: why}
	}
	for _, r := range h.Rollouts() {
		s.Rollouts[r.Name] = r.Phase
	}
	ctx, cancel := context.WithTimeout(ctx, hookEvery)
	defer cancel()
	if seq, err = h.LastAct(ctx); err != nil || last < 0 || seq == last {
		return s, seq, err
	}
	if s.Acts, err = h.Acts(ctx, last, actsAtOnce); len(s.Acts) > 0 {
		seq = s.Acts[len(s.Acts)-1].Seq // others may have come meanwhile, or wait still
	}
	return s, seq, err
}
