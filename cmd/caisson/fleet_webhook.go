// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/spf13/pflag"

	"github.com/caisson-os/caisson/fleet/hub"
	"github.com/caisson-os/caisson/fleet/webhook"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/oci"
)

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
