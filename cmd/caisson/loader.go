// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/builder"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/media"
	"github.com/caisson-os/caisson/spec"
)

// publishedLoader is the output of loader -o json.
type publishedLoader struct {
	spec.Loader
	Layer       string   `json:"layer"`              // whose kernel loads
	Register    string   `json:"register,omitempty"` // what it leaves in register 11 of a TPM, hexadecimal; absent where it is not known
	Unchanged   bool     `json:"unchanged"`          // fleet:current named it already
	Credentials []string `json:"credentials"`        // what looks like one; readers of the registry can read it
	DryRun      bool     `json:"dryRun,omitempty"`   // nothing was published
}

// loaderVerb are the flags of loader.
type loaderVerb struct {
	loaderFlags
	who   signers
	known memoryFlags
	boot  bootFlags
	yes   bool
}

func (a *app) loaderCommand() *cobra.Command {
	var f loaderVerb
	c := verb("loader", func(c *cobra.Command, names []string) error {
		return a.publishLoader(c.Context(), f, names)
	})
	f.loaderFlags.flags(a, c)
	f.who.flags(c.Flags())
	f.known.flags(c.Flags())
	f.boot.flags(c.Flags())
	c.Flags().BoolVar(&f.yes, "yes", false, "do not ask about credentials")
	return c
}

func (a *app) publishLoader(ctx context.Context, f loaderVerb, names []string) error {
	s, err := a.loadSite(names...)
	if err != nil {
		return err
	}
	f.boot.keys.Passphrase = f.who.passphrase
	key, err := f.boot.key(a, s)
	if err != nil {
		return err
	}
	b, reg, layer, err := a.loader(ctx, s, &f.loaderFlags, names[0])
	if err != nil {
		return err
	}
	result := publishedLoader{Layer: layer.Digest, Credentials: append([]string{}, media.Credentials(b, f.args)...), DryRun: f.who.dry}
	if err := a.allows(result.Credentials, f.yes); err != nil {
		return err
	}
	f.known.remember = cmp.Or(f.known.remember, memoryName(names[0]))
	x := changing{looking{reach: f.registry, whom: trustFlags{site: names}, known: f.known}, f.who}
	p, err := x.publisher(a, f.from)
	if err != nil {
		return err
	}
	l, err := media.Fetch(ctx, reg, media.Source{Layer: layer, Bootstrap: b, Args: f.args, Sign: builder.Programs(key)})
	if err != nil {
		return err
	}
	before, err := follow(ctx, p, l)
	if err != nil {
		return err
	}
	if result.Unchanged = before != nil; result.Unchanged {
		result.Loader = *before
	} else if result.Loader, err = a.pushLoader(ctx, p, l, f.who.dry); err != nil {
		return err
	}
	result.Register = l.Register()
	return a.show(result, func() {
		cli.Printf(a.out, "loader %d\t%s\t%s\n", result.Number, result.Arch, result.Image.Digest)
		if result.Unchanged {
			a.say("fleet:current names it already")
		}
	})
}

// follow gives a loader the number that comes after the published one of its architecture, and
// after that of media of its layer, which may have another site.cpio. It returns the published
// one where both are the same.
func follow(ctx context.Context, p *publish.Publisher, l *media.Loader) (*spec.Loader, error) {
	list, err := p.Loaders(ctx)
	if err != nil {
		return nil, err
	}
	next := l.Number + 1
	if at := slices.IndexFunc(list, func(o spec.Loader) bool { return o.Arch == l.Arch }); at >= 0 {
		before := list[at]
		if err := l.SetNumber(before.Number); err != nil {
			return nil, err
		}
		if digest.Of(l.Image) == before.Image.Digest {
			return &before, nil
		}
		next = max(next, before.Number+1)
	}
	return nil, l.SetNumber(next)
}

func (a *app) pushLoader(ctx context.Context, p *publish.Publisher, l *media.Loader, dry bool) (spec.Loader, error) {
	if dry {
		return spec.Loader{Arch: l.Arch, Number: l.Number, Image: spec.Blob{Digest: digest.Of(l.Image), Size: int64(len(l.Image))}}, nil
	}
	a.say("pushing loader %d,%s", l.Number, size(int64(len(l.Image))))
	pushed, err := l.Push(ctx, p.Registry)
	if err != nil {
		return pushed, err
	}
	_, err = p.Refresh(ctx, publish.Lists{Loader: &pushed})
	return pushed, err
}
