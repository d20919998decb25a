// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"context"
	"crypto"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/builder/apt"
	"github.com/caisson-os/caisson/builder/boot"
	"github.com/caisson-os/caisson/builder/root"
	"github.com/caisson-os/caisson/internal/cms"
)

// apart resolves what is asked for, and what modules of its packages are made with.
func (b *build) apart(ctx context.Context, ask apt.Request, base []string) (kept, tools []apt.Deb, err error) {
	kept, err = b.timed(ctx, ask)
	if err == nil && !slices.Contains(names(kept), boot.DKMS) || ctx.Err() != nil {
		return kept, nil, err
	}
	without := ask
	without.Status += boot.StandIn
	resolved, failed := b.timed(ctx, without)
	if failed != nil { // also where a package is blacklisted that the tools need
		return nil, nil, err
	}
	there := append(slices.Clone(base), names(resolved)...)
	if b.foreign != nil {
		there = append(there, b.foreign.installed("")...)
	}
	with := ask
	with.Never, with.Install = nil, append(slices.Clone(ask.Install), boot.DKMS)
	headers, err := boot.Headers(there)
	if err == nil {
		if headers != "" {
			with.Install = append(with.Install, headers)
		}
		tools, err = b.timed(ctx, with)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("packages with modules for %s: %w", boot.DKMS, err)
	}
	return resolved, slices.DeleteFunc(tools, func(d apt.Deb) bool { return slices.Contains(resolved, d) }), nil
}

// withModules installs packages that need the tools, and makes their modules.
func (b *build) withModules(ctx context.Context, r *root.Root, install func() error) error {
	if err := boot.PretendDKMS(r); err != nil {
		return err
	}
	if err := install(); err != nil {
		return err
	}
	if err := boot.ForgetDKMS(ctx, r); err != nil {
		return err
	}
	if err := b.fetch(ctx, func() *apt.State { return b.apt }, b.chosen.Tools); err != nil {
		return err
	}
	repo := filepath.Join(b.tmp, "repo-tools")
	if err := b.store.Repo(repo, "caisson", b.chosen.Tools); err != nil {
		return err
	}
	above, err := os.MkdirTemp(b.tmp, "tools-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(above) // the next build clears what is left
	scratch := &root.Root{Lowers: append([]string{r.Upper}, r.Lowers...), Upper: above, Work: r.Work, Epoch: r.Epoch, Host: r.Host}
	if err := scratch.MkdirAll("/", 0o755); err != nil {
		return err
	}
	b.say(Event{Step: stepPackages, State: "note", Text: fmt.Sprintf("%d packages more make modules, and do not stay", len(b.chosen.Tools))})
	if err := apt.Get(ctx, scratch, repo, b.counter(stepPackages, len(b.chosen.Tools)),
		append([]string{"install", "--"}, names(b.chosen.Tools)...)...); err != nil {
		return fmt.Errorf("install what makes modules: %w", err)
	}
	made, err := boot.MakeModules(ctx, r, scratch, signs(b.options.Boot, boot.SignModule))
	if err == nil && len(made) > 0 {
		by := "not signed: a kernel under lockdown loads none of them"
		if b.options.Boot != nil {
			by = "signed as " + b.options.Boot.Certificate().Subject.CommonName
		}
		b.say(Event{Step: stepPackages, State: "note", Text: "modules: " + strings.Join(made, ", ") + "; " + by})
	}
	return err
}

// BootKey signs what firmware starts, and what a kernel under lockdown loads.
type BootKey interface {
	Certificate() *x509.Certificate
	Open() (crypto.Signer, error) // once the programs that make modules have ended
}

// Signs signs something, or returns it as it is where there is no key.
type Signs func(data []byte) ([]byte, error)

// Programs signs programs for firmware with a key; nil signs none.
func Programs(key BootKey) Signs { return signs(key, cms.SignImage) }

func signs(key BootKey, sign func(data []byte, key crypto.Signer, certificate *x509.Certificate) ([]byte, error)) Signs {
	if key == nil {
		return func(data []byte) ([]byte, error) { return data, nil }
	}
	return func(data []byte) ([]byte, error) {
		signer, err := key.Open()
		if err != nil {
			return nil, err
		}
		return sign(data, signer, key.Certificate())
	}
}
