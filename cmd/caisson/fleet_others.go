// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/caisson-os/caisson/fleet/hub"
	"github.com/caisson-os/caisson/fleet/people"
	"github.com/caisson-os/caisson/fleet/server"
	"github.com/caisson-os/caisson/fleet/webhook"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/oci"
)

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
