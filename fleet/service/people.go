// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/fleet/hub"
	"github.com/caisson-os/caisson/fleet/people"
	"github.com/caisson-os/caisson/fleet/server"
	"github.com/caisson-os/caisson/fleet/webhook"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/oci"
)

// Slots say who may hold a slot.
type Slots struct {
	Most  map[string]int // of each group
	Drain []string       // groups
}

// drains returns the groups of slots whose nodes are drained first, and refuses groups that cannot be.
func (s Slots) drains() (map[string]bool, error) {
	for _, name := range slices.Sorted(maps.Keys(s.Most)) {
		if s.Most[name] < 1 || s.Most[name] > 1_000_000 || name == "" {
			return nil, cli.Usage("as in --slot default=1", "group %q has %d slots", name, s.Most[name])
		}
	}
	drains := map[string]bool{}
	for _, name := range s.Drain {
		if s.Most[name] == 0 {
			return nil, cli.Usage("as in --slot "+name+"=1 --drain "+name, "--drain %s: there is no such group of slots", name)
		}
		drains[name] = true
	}
	return drains, nil
}

// People says at which provider people log in.
type People struct {
	Issuer, Client, Secret, Claim string // Secret is a file
	Groups                        []string
	Session                       time.Duration
}

// open returns who may log in, nil where no provider is named. own is the service's own address.
func (p *People) open(s *server.Options, own string) (*server.People, error) {
	if p.Issuer == "" && (p.Secret != "" || len(p.Groups) > 0) {
		return nil, cli.Usage("as in --oidc-issuer https://id.example.org", "--oidc-secret and --oidc-group are of no use without --oidc-issuer")
	}
	if p.Issuer == "" {
		return nil, nil
	}
	switch u, err := url.Parse(p.Issuer); {
	case err != nil || !private(u):
		return nil, cli.Usage("as in --oidc-issuer https://id.example.org", "--oidc-issuer %q is not https:// with a name", p.Issuer)
	case s.Tokens == nil:
		return nil, cli.Usage("give --tokens: nodes and programs have no person", "--oidc-issuer without --tokens")
	case p.Claim == "":
		return nil, cli.Usage("as in --oidc-claim groups", "--oidc-claim is empty: nobody would be in a group")
	case p.Session < time.Minute || p.Session > 24*time.Hour:
		return nil, cli.Usage("", "--oidc-session %v is not between a minute and a day", p.Session)
	}
	groups, err := people.ParseGroups(p.Groups)
	if err != nil {
		return nil, cli.Usage("as in --oidc-group operator=ops", "--oidc-group: %w", err)
	}
	if len(groups) == 0 {
		return nil, cli.Usage("as in --oidc-group operator=ops", "--oidc-issuer without --oidc-group: nobody could do anything")
	}
	secret := ""
	if p.Secret != "" {
		text, err := ownfiles.ReadLinked(p.Secret)
		if err != nil {
			return nil, fmt.Errorf("--oidc-secret: %w", err)
		}
		if secret = strings.TrimSpace(string(text)); secret == "" {
			return nil, fmt.Errorf("--oidc-secret: %s is empty", p.Secret)
		}
	}
	provider := people.New(people.Options{Issuer: p.Issuer, Client: p.Client, Secret: secret, Claim: p.Claim,
		Callback: cmp.Or(s.URL, own) + server.BackPath})
	return &server.People{Provider: provider, Groups: groups, Session: p.Session}, nil
}

// private reports whether nobody between here and a URL reads along.
func private(u *url.URL) bool {
	return u.Host != "" && (u.Scheme == "https" || u.Scheme == "http" && (oci.Ref{Host: u.Host}).Loopback())
}

// Hooks say whom the service tells what changed.
type Hooks struct {
	URLs   []string
	Secret string // file
}

// hookEvery is how often a fleet is compared with what it was.
const hookEvery = 5 * time.Second

// open returns whom to tell.
func (h *Hooks) open(say func(string, ...any)) (all []*webhook.Receiver, err error) {
	if len(h.URLs) == 0 {
		return nil, nil
	}
	if h.Secret == "" {
		return nil, cli.Usage("'echo whsec_$(head -c 32 /dev/urandom | base64)' makes one",
			"--webhook without --webhook-secret: nobody could tell its messages from others")
	}
	text, err := ownfiles.ReadLinked(h.Secret)
	if err != nil {
		return nil, fmt.Errorf("--webhook-secret: %w", err)
	}
	secret, err := webhook.ParseSecret(string(text))
	if err != nil {
		return nil, cli.Usage("'echo whsec_$(head -c 32 /dev/urandom | base64)' makes one", "--webhook-secret %s: %w", h.Secret, err)
	}
	for _, text := range h.URLs {
		u, err := url.Parse(text)
		if err != nil || u.User != nil || !private(u) {
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
	if seq, err = h.Log().LastAct(ctx); err != nil || last < 0 || seq == last {
		return s, seq, err
	}
	if s.Acts, err = h.Log().Acts(ctx, last, actsAtOnce); len(s.Acts) > 0 {
		seq = s.Acts[len(s.Acts)-1].Seq // others may have come meanwhile, or wait still
	}
	return s, seq, err
}

const maxAuthorities = 1 << 20 // bytes of a file

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
