// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/plain"

	"github.com/caisson-os/caisson/builder/accounts"
	"github.com/caisson-os/caisson/builder/apparmor"
	"github.com/caisson-os/caisson/builder/apt"
	"github.com/caisson-os/caisson/builder/base"
	"github.com/caisson-os/caisson/builder/boot"
	"github.com/caisson-os/caisson/builder/packages"

	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// Check refuses a recipe that no step could make, naming every problem. It
// touches no file and asks no archive.
func Check(r spec.Recipe) error {
	if rules.Given(r.Base.Debian != nil, r.Base.OCI != "", r.Base.Tar != "") != 1 {
		return errors.New("layer.base: exactly one of debian, oci and tar belongs there")
	}
	if r.Kernel == "" {
		return errors.New("layer.kernel.package: a layer needs a kernel")
	}
	if err := rules.Package(r.Kernel); err != nil {
		return fmt.Errorf("layer.kernel.package: %w", err)
	}
	if !slices.Contains(spec.Arches, r.Arch) {
		return fmt.Errorf("layer.arch: %q is not %s", r.Arch, strings.Join(spec.Arches, " or "))
	}
	return errors.Join(apt.Check(r.Base.Debian, r.Packages.Repositories), packages.Check(r.Packages),
		accounts.Check(r.Accounts), apparmor.Check(r.AppArmor), accounts.CheckPerm(r.Perm))
}

// baseNames returns the packages that the base cannot be without. Early microcode is in the base
// because the initrd is made from it.
func (b *build) baseNames() []string {
	return append(append([]string{}, base.Include...), b.recipe.Kernel)
}

// baseAsked returns the packages that the base is asked for by name: also those that Debian
// installs with it, as far as it was chosen. A lock from before that list stays one of the same
// recipe.
func (b *build) baseAsked() []string {
	chosen := names(b.chosen.Base)
	return append(b.baseNames(), slices.DeleteFunc(base.Recommended(), func(name string) bool { return !slices.Contains(chosen, name) })...)
}

func names(debs []apt.Deb) []string {
	return plain.Each(debs, func(d apt.Deb) string { return d.Name })
}

// sources opens the archives: of the base, and of the packages above it.
func (b *build) sources(ctx context.Context) error {
	var archives []apt.Archive
	if d := b.recipe.Base.Debian; d != nil {
		debian := *d
		if debian.Keyring != "" && !filepath.IsAbs(debian.Keyring) {
			debian.Keyring = filepath.Join(b.options.SiteDir, debian.Keyring)
		}
		var err error
		if archives, err = apt.Debian(debian, "/"); err != nil {
			return err
		}
	}
	var err error
	if b.baseApt, err = b.openApt(ctx, archives); err != nil {
		return err
	}
	own, err := apt.Repositories(b.recipe.Packages.Repositories, filepath.Join(b.options.CacheDir, "keys", b.lockKey()[7:31]))
	if err != nil {
		return err
	}
	switch {
	case len(own) == 0:
		b.apt = b.baseApt
		return nil
	case !b.recipe.Packages.Exclusive:
		own = append(archives, own...)
	}
	b.apt, err = b.openApt(ctx, own)
	return err
}

func (b *build) openApt(ctx context.Context, archives []apt.Archive) (*apt.State, error) {
	inputs, err := json.Marshal([]any{b.recipe.Arch, archives}) // an index is one architecture's
	if err != nil {
		return nil, err
	}
	return apt.Open(ctx, filepath.Join(b.options.CacheDir, "apt", digest.Of(inputs)[7:31]), b.recipe.Arch, archives)
}

// resolve decides which package files the build uses.
func (b *build) resolve(ctx context.Context) (err error) {
	if b.foreign, err = b.openForeign(ctx); err != nil {
		return err
	}
	if b.options.Lock == nil {
		if err := b.sources(ctx); err != nil {
			return err
		}
		b.chosen, err = b.solve(ctx)
	} else {
		err = b.locked()
	}
	if err != nil {
		return err
	}
	b.sayLacking()
	epoch, err := b.chosen.Epoch()
	if err != nil {
		return err
	}
	baseEpoch, err := b.chosen.BaseEpoch()
	if err != nil {
		return err
	}
	b.epoch, b.baseEpoch = epoch.Unix(), baseEpoch.Unix()
	if now := time.Now(); now.Before(epoch) {
		return fmt.Errorf("the clock says %s, but the packages are from %s: set the clock", now.UTC().Format(time.RFC3339),
			epoch.UTC().Format(time.RFC3339))
	}
	return nil
}

// locked takes the lock that was made for the packages of the recipe. A variant whose
// users alone are others has no lock of its own, and needs none.
func (b *build) locked() error {
	key := b.lockKey()
	for _, l := range append([]packages.Lock{*b.options.Lock}, b.options.Shared...) {
		if l.Recipe == key && slices.Contains(names(l.Packages), boot.DKMS) {
			return cli.WithHint(errors.New("the lock is of a release that made no modules: it has "+boot.DKMS+
				" and a compiler for the layer"), "'caisson lock --update' has them for the build alone")
		}
		if l.Recipe == key {
			b.chosen = l
			return nil
		}
	}
	return cli.WithHint(errors.New("the lock was made for other packages than the site asks for now"),
		"run 'caisson lock --update' and look at what changes")
}

// sayLacking says what a node will be without. Archives that this build has not asked may
// have more than a lock of before names.
func (b *build) sayLacking() {
	lacking := slices.DeleteFunc(b.missing(base.Recommended()...), func(name string) bool {
		return slices.Contains(b.recipe.Packages.Blacklist, name)
	})
	older := len(b.missing(spec.DefaultTimeService)) == 1 && slices.Contains(lacking, "procps") || slices.Contains(lacking, "tzdata")
	if older && b.options.Lock != nil && b.foreign == nil {
		b.say(Event{Step: stepResolve, State: "note", Text: "the lock is older than this list: it may lack, where its suite has them, " +
			strings.Join(lacking, ", ") + "; 'caisson lock --update' takes what the archives have"})
	}
	if unread := slices.DeleteFunc(packages.Names(b.recipe.Packages), func(name string) bool {
		return name != "man-db" && !strings.HasSuffix(name, "-doc")
	}); len(unread) > 0 && b.foreign == nil && !b.recipe.Base.Debian.Documentation {
		b.say(Event{Step: stepResolve, State: "note", Text: "layers leave out man pages, /usr/share/doc, info and " +
			"translations of all packages, so that there is little to read for " + strings.Join(unread, ", ") +
			"; layer.base.debian.documentation keeps them"})
	}
	if len(b.missing(spec.TimePackages()...)) == len(spec.TimeServices) {
		b.say(Event{Step: stepResolve, State: "note", Text: "no time service: nothing sets the clocks of nodes, so no " +
			"window opens and network.ntp is not heard; conf.apt.packages takes one of " + strings.Join(spec.TimePackages(), ", ")})
	}
}

// missing returns those of some packages that are not in the layer.
func (b *build) missing(list ...string) []string {
	there := append(names(b.chosen.Base), names(b.chosen.Packages)...)
	if b.foreign != nil {
		there = append(there, b.foreign.installed("")...)
	}
	return slices.DeleteFunc(list, func(name string) bool { return slices.Contains(there, name) })
}

// lockKey is the [packages.Lock.Recipe] of the build.
func (b *build) lockKey() string {
	if b.foreign != nil {
		return packages.LockKey(b.recipe, b.foreign.digest)
	}
	return packages.LockKey(b.recipe, "")
}

// solve asks the archives. While they say whether their indexes are still those
// that apt verified last, apt resolves with these; its answer counts only if so.
func (b *build) solve(ctx context.Context) (packages.Lock, error) {
	b.say(Event{Step: stepResolve, State: "start"})
	states := []*apt.State{b.baseApt}
	if b.apt != b.baseApt {
		states = append(states, b.apt)
	}
	early, stop := context.WithCancel(ctx)
	defer stop()
	var ahead packages.Lock
	var aheadErr error
	done := make(chan struct{})
	go func() {
		defer close(done)
		if !slices.ContainsFunc(states, func(s *apt.State) bool { return !s.Verified() }) {
			ahead, aheadErr = b.answer(early, states)
		}
	}()
	current, err := true, error(nil)
	for i := 0; i < len(states) && current && err == nil; i++ {
		current, err = states[i].Current(ctx)
	}
	if !current || err != nil {
		stop()
	}
	<-done // before the indexes that it reads change
	switch {
	case err != nil:
		return packages.Lock{}, err
	case current:
		return ahead, aheadErr
	}
	for _, s := range states {
		if err := s.Update(ctx); err != nil {
			return packages.Lock{}, err
		}
	}
	return b.answer(ctx, states)
}

// answer resolves with the indexes that are there.
func (b *build) answer(ctx context.Context, states []*apt.State) (packages.Lock, error) {
	l := packages.Lock{Recipe: b.lockKey(), Packages: []apt.Deb{}}
	for _, s := range states {
		keys, err := s.Signers(ctx)
		if err != nil {
			return l, err
		}
		for _, by := range keys {
			if l.SignedBy.Of(by.Archive) == nil {
				l.SignedBy = append(l.SignedBy, by)
			}
		}
		releases, err := s.Releases()
		if err != nil {
			return l, err
		}
		for _, r := range releases {
			if !slices.Contains(l.Releases, r) {
				l.Releases = append(l.Releases, r)
			}
		}
	}
	return recall(b, []any{l, base.Recommended(), boot.DKMS, "sources"}, func() (packages.Lock, error) { return b.choose(ctx, l) })
}

// recall returns what find has found for the same question before: the same indexes
// and the same request have the same answer.
func recall[T any](b *build, question any, find func() (T, error)) (answer T, err error) {
	data, err := json.Marshal(question)
	if err != nil {
		return answer, err
	}
	memo := filepath.Join(b.options.CacheDir, "resolved", digest.Of(fmt.Appendf(data, " %T", answer))[7:31]+".json")
	if data, err := os.ReadFile(memo); err == nil && json.Unmarshal(data, &answer) == nil {
		use(memo)
		return answer, nil
	}
	if answer, err = find(); err != nil {
		return answer, err
	}
	if data, err = json.Marshal(answer); err != nil {
		return answer, err
	}
	return answer, durable.WriteFile(memo, data, 0o644)
}

// choose decides for the indexes that l names.
func (b *build) choose(ctx context.Context, l packages.Lock) (packages.Lock, error) {
	p := b.wanted()
	ask := apt.Request{Install: packages.Wanted(p), Upgrade: p.Upgrade, AllowDowngrade: p.AllowDowngrade,
		Recommends: p.Recommends, Hold: p.Hold, Never: p.Blacklist}
	if b.foreign != nil {
		l.Base, ask.Status = []apt.Deb{}, b.foreign.status
		if len(l.Releases) == 0 {
			date, err := b.foreign.newest(ctx)
			if err != nil {
				return l, err
			}
			l.Releases = []apt.Release{{Suite: "base", Date: date, SHA256: b.foreign.digest[7:]}}
		}
	} else {
		recommended, err := b.baseApt.Has(ctx, base.Recommended())
		if err != nil {
			return l, err
		}
		names := slices.Concat([]string{"?essential", "apt"}, b.baseNames(), recommended)
		releases, err := b.baseApt.Releases()
		if err != nil {
			return l, err
		}
		question := []any{b.recipe.Arch, releases, names}
		if l.Base, err = recall(b, question, func() ([]apt.Deb,
			error) {
			return b.baseApt.Resolve(ctx, apt.Request{Install: names})
		}); err != nil {
			return l, err
		}
		ask.Installed, ask.From, ask.Manual = l.Base, b.baseApt, append(b.baseNames(), recommended...)
	}
	found, tools, err := b.apart(ctx, ask, names(l.Base))
	if err != nil {
		return l, err
	}
	l.Packages, l.Tools = append(l.Packages, found...), tools
	if err := b.baseApt.SetSources(ctx, l.Base); err != nil {
		return l, err
	}
	if err := b.apt.SetSources(ctx, l.Packages); err != nil {
		return l, err
	}
	for _, list := range [][]apt.Deb{l.Base, l.Packages, l.Tools} {
		sort.Slice(list, func(i, j int) bool { return list[i].Name < list[j].Name })
	}
	date, err := l.Epoch()
	if err != nil {
		return l, err
	}
	l.BaseDate = date.Format(time.RFC3339)
	return l, nil
}

// timed resolves what is asked for, with a time service where nothing else is one.
func (b *build) timed(ctx context.Context, ask apt.Request) ([]apt.Deb, error) {
	providers, err := b.apt.Providers(ctx, spec.TimeDaemon)
	if err != nil {
		return nil, err
	}
	is := func(request string) bool {
		name, _, _ := strings.Cut(request, "=")
		return slices.Contains(providers, name)
	}
	none := !slices.ContainsFunc(ask.Install, is) && !slices.Contains(ask.Never, spec.DefaultTimeService) &&
		slices.Contains(providers, spec.DefaultTimeService)
	if b.foreign != nil {
		none = none && len(b.foreign.installed(spec.TimeDaemon)) == 0
	}
	if none {
		with := ask
		with.Install = append(slices.Clone(ask.Install), spec.DefaultTimeService)
		if found, err := b.apt.Resolve(ctx, with); err == nil || ctx.Err() != nil {
			return found, err
		}
	}
	// The site has one; or what it asks for needs another one, or cannot be had at all.
	if len(ask.Install) == 0 && !ask.Upgrade {
		return nil, nil
	}
	return b.apt.Resolve(ctx, ask)
}

// fetch gets package files for the step that installs them. Nothing is fetched
// for a step that is in the cache.
func (b *build) fetch(ctx context.Context, s func() *apt.State, debs []apt.Deb) error {
	if b.baseApt == nil {
		if err := b.sources(ctx); err != nil {
			return err
		}
	}
	b.store.Keys = b.chosen.SignedBy
	return b.store.Fetch(ctx, s(), debs, func(f apt.Fetched) {
		b.say(Event{Step: stepResolve, State: "fetch", N: f.N, Of: f.Of, Bytes: f.Bytes, OfBytes: f.OfBytes, Text: f.Deb.Name})
	})
}
