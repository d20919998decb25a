// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/builder/apt"
	"github.com/caisson-os/caisson/builder/base"
	"github.com/caisson-os/caisson/builder/boot"
	"github.com/caisson-os/caisson/builder/root"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
)

// foreign is a base that was made elsewhere: a tar, or an OCI image flattened to
// one. It must be a Debian system with dpkg and apt; what a node needs and it has
// not is installed in the packages step, from the site's repositories.
type foreign struct {
	file   string
	digest string
	status string // dpkg's, from the tar
}

// openForeign finds the tar of a base that is not bootstrapped here, or returns nil.
func (b *build) openForeign(ctx context.Context) (*foreign, error) {
	var f foreign
	switch r := b.recipe.Base; {
	case r.Debian != nil:
		return nil, nil
	case r.Tar != "":
		f.file = r.Tar
		if !filepath.IsAbs(f.file) {
			f.file = filepath.Join(b.options.SiteDir, r.Tar)
		}
		sum, err := describe(filepath.Dir(f.file), filepath.Base(f.file), "", "")
		if err != nil {
			return nil, fmt.Errorf("layer.base.tar: %w", err)
		}
		f.digest = sum.Digest
	default:
		_, named, _ := strings.Cut(r.OCI, "@")
		if !digest.Valid(named) {
			return nil, fmt.Errorf("layer.base.oci: %q does not name an image by digest: REF@sha256:…", r.OCI)
		}
		f.digest = named
		f.file = filepath.Join(b.options.CacheDir, "bases", digest.Hex(named)+".tar")
		if err := b.pull(ctx, r.OCI, f.file); err != nil {
			return nil, fmt.Errorf("layer.base.oci: %w", err)
		}
	}
	var err error
	f.status, err = f.read(ctx, "var/lib/dpkg/status")
	return &f, err
}

func lastSaid(err error) string {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		text := strings.TrimSpace(string(exit.Stderr))
		return text[strings.LastIndexByte(text, '\n')+1:]
	}
	return "empty"
}

// pull keeps an image's flattened tar in the cache.
func (b *build) pull(ctx context.Context, ref, file string) error {
	if exists(file) {
		use(file)
		return nil
	}
	if b.options.OpenOCI == nil {
		return errors.New("this program cannot read OCI images")
	}
	r, err := b.options.OpenOCI(ctx, ref)
	if err != nil {
		return err
	}
	defer r.Close() // only read
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return durable.Write(file, 0o644, func(w io.Writer) error {
		_, err := io.Copy(w, r)
		return err
	})
}

// unpack makes the base's tree. Owners and attributes are the tar's.
func (b *build) unpack(ctx context.Context, r *root.Root) error {
	err := root.Isolated(ctx, []string{r.Upper}, root.Command{Args: []string{"tar", "--extract", "--numeric-owner",
		"--preserve-permissions", "--xattrs", "--xattrs-include=*",
		"--exclude=./dev/*", "--exclude=dev/*", "--directory", r.Upper, "--file", b.foreign.file}})
	if err != nil {
		return fmt.Errorf("unpack: %w", root.Said(err))
	}
	for _, dir := range []string{"/proc", "/sys", "/dev", "/run", "/tmp"} {
		if err := r.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := r.Chmod("/tmp", 0o777|fs.ModeSticky); err != nil {
		return err
	}
	return base.Scrub(r.Upper)
}

// wanted is the packages part of the recipe, with what a foreign base lacks and the time
// service that was chosen because nothing else is one.
func (b *build) wanted() spec.Packages {
	p := b.recipe.Packages
	var more, there []string
	if slices.Contains(names(b.chosen.Packages), spec.DefaultTimeService) {
		more = append(more, spec.DefaultTimeService)
	}
	if b.foreign != nil {
		more, there = append(more, b.baseNames()...), b.foreign.installed("")
	}
	there = append(there, plain.Each(p.Install, func(pkg spec.Package) string { return pkg.Name })...)
	p.Install = slices.DeleteFunc(slices.Clone(p.Install), func(pkg spec.Package) bool { return pkg.Name == boot.DKMS })
	for _, name := range more {
		if !slices.Contains(there, name) {
			p.Install = append(p.Install, spec.Package{Name: name})
		}
	}
	return p
}

// installed lists what the base has; with the name of a virtual package, what provides that.
func (f *foreign) installed(provides string) (names []string) {
	for _, st := range apt.Stanzas(f.status) {
		if strings.HasSuffix(st.Get("Status"), " ok installed") && (provides == "" ||
			slices.Contains(strings.FieldsFunc(st.Get("Provides"), func(r rune) bool { return r == ',' || r == ' ' }), provides)) {
			names = append(names, st.Get("Package"))
		}
	}
	return names
}

// newest is the latest date in the tar: the date of a layer that takes no package
// from anywhere.
func (f *foreign) newest(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "tar", "--list", "--verbose", "--full-time", "--utc", "--quoting-style=escape",
		"--file", f.file).Output()
	if err != nil {
		return "", fmt.Errorf("layer.base: list the tar: %s", lastSaid(err))
	}
	newest := "1970-01-01T00:00:00Z"
	for line := range strings.Lines(string(out)) {
		if w := strings.Fields(line); len(w) > 5 {
			clock, _, _ := strings.Cut(w[4], ".")
			newest = max(newest, w[3]+"T"+clock+"Z")
		}
	}
	return newest, nil
}
