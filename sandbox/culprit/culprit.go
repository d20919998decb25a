// SPDX-License-Identifier: Apache-2.0

// Package culprit finds which change of a node broke a check, by booting what a registry
// keeps of the node.
//
// A [Search] asks a [Machine], and knows no nodes; [Node] is its machine: it boots generations as
// they were published, and overlays that have some settings of one and the rest of another. Of two
// layers that differ, images of both are stacked, and packages are installed as the lock of each
// side has them. What was answered is in a file below the cache, so that an interrupted search goes
// on. Only cmd/caisson imports it.
package culprit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/builder/packages"
	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/git"
	"github.com/caisson-os/caisson/fleet/history"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/sandbox"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/compare"
)

// Node is the node that is looked at.
type Node struct {
	Name   string
	Site   *site.Site // says how it reaches its network
	Fleet  *published.Fleet
	From   *registry.Registry // where the fleet is published
	Box    sandbox.Options
	Checks []string      // commands that have to end with 0; without one the node's health decides
	Within time.Duration // from power-on to the gates, and for each check
	Tell   func(box *sandbox.Box)
	Then   func(commit string) Past

	kept  []history.Entry   // that gave the node something else, the oldest first
	then  map[string]Past   // what Then said, by commit
	work  string            // directory for what is built, which goes with the search
	apart *release.Versions // packages that are tried by name; nil where they are one part
	say   func(format string, args ...any)
	boot  func(context.Context, *sandbox.Kept) (Answer, error)
}

// Past is what a site was at a commit.
type Past struct {
	Boot  []spec.BootNetwork // bootNetwork; nil: that of now counts
	Locks *packages.LockFile // nil: it had none
	Site  *site.Site         // nil: it cannot be told
	Dir   string             // below which its files are
}

// Generation implements [Machine].
func (n *Node) Generation(ctx context.Context, i int) (Answer, error) {
	k, err := n.read(ctx, i)
	if err != nil {
		return skipped(err)
	}
	return n.boot(ctx, k)
}

// Parts implements [Machine].
func (n *Node) Parts(ctx context.Context, good, bad int) ([]string, error) {
	a, b, err := n.both(ctx, good, bad)
	if err != nil {
		return nil, err
	}
	parts, err := compare.Parts(a.Overlay, b.Overlay)
	if err != nil || len(parts) == 0 || parts[0] != compare.Layer {
		return parts, err
	}
	apart := sharesOf(a.Layer.Layer, b.Layer.Layer)
	if i := slices.Index(apart, packagesPart); i >= 0 {
		locks := [2]*packages.LockFile{n.past(n.kept[good].Commit).Locks, n.past(n.kept[bad].Commit).Locks}
		n.apart, err = n.Box.Build.Versions(ctx, n.work, a.Layer, b.Layer, locks)
		switch {
		case ctx.Err() != nil:
			return nil, err
		case err != nil:
			n.say("packages are not tried apart: %s", plain.Line(err.Error()))
		default:
			names := plain.Each(slices.Sorted(maps.Keys(n.apart.Names)), func(source string) string { return packagesPart + "/" + source })
			apart = slices.Replace(apart, i, i+1, names...)
		}
	}
	if len(apart) > 1 || n.apart != nil {
		parts = append(apart, parts[1:]...)
	}
	return parts, nil
}

// Mix implements [Machine].
func (n *Node) Mix(ctx context.Context, good, bad int, parts []string) (Answer, error) {
	a, b, err := n.both(ctx, good, bad)
	if err != nil {
		return skipped(err)
	}
	parts, some := n.fold(parts)
	var built *release.Layer
	if some != nil {
		agent := a.Layer
		if slices.Contains(parts, agentPart) {
			agent = b.Layer
		}
		l, err := n.apart.Make(ctx, some, agent)
		switch {
		case err != nil && (ctx.Err() != nil || strings.Contains(strings.ToLower(err.Error()), unix.ENOSPC.Error())): // as tools say it, too
			return Answer{}, err
		case err != nil:
			return Answer{Outcome: Skip, Why: err.Error()}, nil
		}
		built, parts = &l, append(parts, packagesPart)
	}
	k, err := mixed(a, b, built, parts)
	if err != nil {
		return Answer{}, err
	}
	return n.boot(ctx, k)
}

// fold returns parts with those of packages as one, where they are all of these or none; else the names of theirs.
func (n *Node) fold(parts []string) (rest, some []string) {
	if n.apart == nil {
		return parts, nil
	}
	taken := 0
	for _, p := range parts {
		names := n.named(p)
		if some = append(some, names...); names == nil {
			rest = append(rest, p)
		} else {
			taken++
		}
	}
	if taken == len(n.apart.Names) {
		return append(rest, packagesPart), nil
	}
	return rest, some
}

// named returns the packages of a part, nil where it is none of packages.
func (n *Node) named(part string) []string {
	source, is := strings.CutPrefix(part, packagesPart+"/")
	if !is || n.apart == nil {
		return nil
	}
	return n.apart.Names[source]
}

// mixed returns what is kept of the good generation, with some parts of the bad one. Packages are those of built
// where that is a layer.
func mixed(good, bad *sandbox.Kept, built *release.Layer, parts []string) (*sandbox.Kept, error) {
	k := *good
	taken, parts := split(parts)
	if built == nil && len(taken) > 0 && len(taken) == len(sharesOf(good.Layer.Layer, bad.Layer.Layer)) {
		taken, parts = nil, append(parts, compare.Layer)
	}
	if slices.Contains(parts, compare.Layer) {
		k.Layer = bad.Layer
	}
	if slices.Contains(parts, compare.Network) { // what runs has to find the network that its loader found
		k.Boot = bad.Boot
	}
	var err error
	if k.Overlay, err = compare.Mix(good.Overlay, bad.Overlay, parts); err == nil && len(taken) > 0 {
		k.Layer, k.Stacked, err = stack(good.Layer, bad.Layer, built, taken)
		k.Overlay.Layer = k.Layer.Digest
	}
	return &k, err
}

func (n *Node) read(ctx context.Context, i int) (*sandbox.Kept, error) {
	k, err := sandbox.ReadKept(ctx, n.Fleet, n.From, n.Name, n.kept[i].Node.Content)
	if err == nil {
		k.Boot = n.past(n.kept[i].Commit).Boot
	}
	return k, err
}

// past returns what the site was at a commit, which is asked for once.
func (n *Node) past(commit string) Past {
	if _, known := n.then[commit]; !known {
		n.then[commit] = n.Then(commit)
	}
	return n.then[commit]
}

func (n *Node) both(ctx context.Context, good, bad int) (a, b *sandbox.Kept, err error) {
	if a, err = n.read(ctx, good); err == nil {
		b, err = n.read(ctx, bad)
	}
	return a, b, err
}

// skipped is the answer for what cannot be had any more; another error ends the search.
func skipped(err error) (Answer, error) {
	if errors.Is(err, oci.ErrNotFound) || errors.Is(err, site.ErrNoLayer) || refusal.Of(err) != "" {
		return Answer{Outcome: Skip, Why: err.Error()}, nil
	}
	return Answer{}, err
}

// inMachine boots what is kept, and answers by the checks.
func (n *Node) inMachine(ctx context.Context, k *sandbox.Kept) (a Answer, err error) {
	if err := k.Layer.Suits(k.Overlay); err != nil {
		return Answer{Outcome: Skip, Why: err.Error()}, nil
	}
	o := n.Box
	o.Kept = k
	box, err := sandbox.Open(ctx, n.Site, n.Name, o)
	if err != nil {
		return skipped(err)
	}
	defer func() { err = errors.Join(err, box.Close()) }()
	n.Tell(box)
	if err := box.Start(ctx); err != nil {
		return a, err
	}
	limited, cancel := context.WithTimeout(ctx, n.Within)
	defer cancel()
	var v *sandbox.Verdict
	if err = box.LogIn(limited); err == nil {
		v, err = box.Settle(limited)
	}
	switch down, is := errors.AsType[*sandbox.DownError](err); {
	case ctx.Err() != nil: // the machine ends with it, which is not an answer
		return a, cmp.Or(err, ctx.Err())
	case is:
		return n.unwell(down.Error()), nil
	case err != nil && limited.Err() != nil:
		return n.unwell("the node's gates were not decided within " + n.Within.String()), nil
	case err != nil:
		return a, err
	case len(n.Checks) == 0 && !v.Passed:
		return Answer{Outcome: Bad, Why: v.Reason}, nil
	}
	for _, command := range n.Checks {
		one, cancel := context.WithTimeout(ctx, n.Within)
		c, err := box.Check(one, command)
		late := err != nil && one.Err() != nil
		cancel()
		switch {
		case ctx.Err() != nil:
			return a, cmp.Or(err, ctx.Err())
		case late:
			return Answer{Outcome: Bad, Why: command + " gave no answer within " + n.Within.String()}, nil
		case err != nil:
			return a, err
		case c.Exit < 0:
			return Answer{Outcome: Bad, Why: command + ": " + machine.ErrLost.Error()}, nil
		case !c.Passed:
			return Answer{Outcome: Bad, Why: fmt.Sprintf("%s ended with %d", command, c.Exit)}, nil
		}
	}
	return Answer{Outcome: Good}, nil
}

// unwell is the answer of a node that no check can be run on. Where health alone decides, it is bad.
func (n *Node) unwell(why string) Answer {
	if len(n.Checks) > 0 {
		return Answer{Outcome: Skip, Why: why}
	}
	return Answer{Outcome: Bad, Why: why}
}

// ReadPast reads what a site in a directory was at a commit, from a copy of that; names are of its files.
func ReadPast(ctx context.Context, dir string, names []string, commit string,
	parse func(names ...string) (*site.Site, error)) (past Past, err error) {
	to, err := os.MkdirTemp("", "caisson-then-")
	if err != nil {
		return past, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(to)) }()
	copied, err := git.Export(ctx, dir, commit, to)
	if err != nil {
		return past, err
	}
	then := slices.Clone(names)
	for i, name := range names {
		if then[i], err = filepath.Rel(dir, name); err != nil {
			return past, err
		}
		then[i] = filepath.Join(copied, then[i])
	}
	s, err := parse(then...)
	if err != nil {
		return past, fmt.Errorf("the site at commit %s: %w", commit, err)
	}
	if past.Locks, err = packages.ReadLock(filepath.Join(filepath.Dir(then[0]), "caisson.lock")); err != nil {
		return past, err
	}
	past.Boot, past.Site, past.Dir = append([]spec.BootNetwork{}, s.Bootstrap().Network...), s, copied
	return past, nil
}

// Shares that are more than images: packages may be tried by name, and a loader has the agent, too.
const (
	packagesPart = compare.Layer + "/packages"
	agentPart    = compare.Layer + "/agent"
)

// share is a part of a layer that is tried apart from the rest: images of the bad layer among
// those of the good one. Nothing is built for that.
type share struct {
	name   string
	images []string
	items  []string                              // of the changes that it brings
	take   func(to *spec.Layer, from spec.Layer) // takes what a layer says of these images
}

// shares are in an order in which each has what it needs before it: an account may be there before
// the package whose service runs as it. Packages are on their base, and the kernel's modules are
// among them.
var shares = []share{
	{compare.Layer + "/accounts", []string{spec.ImageAccounts}, []string{"uamlite"},
		func(to *spec.Layer, from spec.Layer) { to.Accounts = from.Accounts }},
	{packagesPart, []string{"base", "packages"}, []string{"base", "kernel", "apt"}, func(to *spec.Layer, from spec.Layer) {
		to.Kernel, to.Initrd, to.UEFI, to.Packages = from.Kernel, from.Initrd, from.UEFI, from.Packages
	}},
	{compare.Layer + "/policy", []string{"policy"}, []string{"apparmor", "perm"},
		func(to *spec.Layer, from spec.Layer) { to.AppArmor = from.AppArmor }},
	{agentPart, []string{"agent"}, nil, func(to *spec.Layer, from spec.Layer) {
		to.Features = from.Features
		if to.Kernel.Blob == from.Kernel.Blob { // else its initrd has modules of another kernel
			to.Initrd = from.Initrd
		}
	}},
}

// sharesOf returns the shares in which two layers differ, none where they are not made of the same images.
func sharesOf(good, bad spec.Layer) (list []string) {
	known := 0
	for _, s := range shares {
		differs := false
		for i, image := range good.Images {
			if !slices.Contains(s.images, image.Name) {
				continue
			}
			if len(bad.Images) != len(good.Images) || bad.Images[i].Name != image.Name {
				return nil
			}
			differs = differs || bad.Images[i].Blob != image.Blob
			known++
		}
		if differs {
			list = append(list, s.name)
		}
	}
	if known != len(good.Images) || good.Arch != bad.Arch {
		return nil
	}
	return list
}

// split returns those parts that are shares of a layer, and the others.
func split(parts []string) (taken, rest []string) {
	for _, p := range parts {
		if strings.HasPrefix(p, compare.Layer+"/") {
			taken = append(taken, p)
		} else {
			rest = append(rest, p)
		}
	}
	return taken, rest
}

// stack returns the good layer with some shares of the bad one, and what makes it. Packages are those of
// mixed where that is a layer.
func stack(good, bad release.Layer, mixed *release.Layer, taken []string) (release.Layer, *sandbox.Stacked, error) {
	l, of := good, []release.Layer{good, bad}
	if mixed != nil {
		of = append(of, *mixed)
	}
	l.Images, l.Roots = slices.Clone(good.Images), map[string]string{}
	for _, s := range shares {
		if !slices.Contains(taken, s.name) {
			continue
		}
		from := bad
		if mixed != nil && s.name == packagesPart {
			from = *mixed
		}
		s.take(&l.Layer, from.Layer)
		for _, image := range from.Images {
			if slices.Contains(s.images, image.Name) {
				l.Images[slices.IndexFunc(l.Images, func(i spec.Image) bool { return i.Name == image.Name })] = image
			}
		}
	}
	if mixed != nil {
		l.Initrd = mixed.Initrd // has the agent that is taken
	}
	for _, image := range l.Images {
		for _, from := range of {
			if root, ok := from.Roots[image.Digest]; ok {
				l.Roots[image.Digest] = root
			}
		}
	}
	config, err := spec.Encode(l.Layer)
	if err != nil {
		return l, nil, err
	}
	m := *good.Manifest
	m.Config, m.Layers = oci.Describe(oci.TypeLayerConfig, config).Bare(), slices.Clone(good.Manifest.Layers)
	for _, from := range of[1:] {
		for _, d := range from.Manifest.Layers {
			if !slices.ContainsFunc(m.Layers, func(has oci.Descriptor) bool { return has.Digest == d.Digest }) {
				m.Layers = append(m.Layers, d)
			}
		}
	}
	raw := oci.Encode(m)
	l.Manifest, l.Digest = &m, oci.Digest(raw)
	return l, &sandbox.Stacked{Of: of, Config: config, Manifest: raw}, nil
}
