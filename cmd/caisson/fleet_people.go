// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/caisson-os/caisson/fleet/people"
	"github.com/caisson-os/caisson/fleet/server"
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
