// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"time"

	"github.com/caisson-os/caisson/builder/apt"
	"github.com/caisson-os/caisson/builder/base"
	"github.com/caisson-os/caisson/builder/packages"
	"github.com/caisson-os/caisson/spec"
)

// checkRecipe refuses what no step could make.
func checkRecipe(r spec.Recipe) error {
	n := 0
	if r.Base.Debian != nil {
		n++
	}
	if r.Base.OCI != "" {
		n++
	}
	if r.Base.Tar != "" {
		n++
	}
	if n != 1 {
		return errors.New("layer.base: exactly one of debian, oci and tar belongs there")
	}
	if r.Base.Debian == nil {
		return errors.New("layer.base: only debian can be built yet")
	}
	if r.Kernel == "" {
		return errors.New("layer.kernel.package: a layer needs a kernel")
	}
	return packages.Check(r.Packages)
}

// baseNames is what the base is asked for by name.
func (b *build) baseNames() []string {
	return append(append([]string{}, base.Include...), b.recipe.Kernel)
}

// resolve decides which package files the build uses, and fetches them.
func (b *build) resolve() error {
	archives, err := apt.Debian(*b.recipe.Base.Debian, "/")
	if err != nil {
		return err
	}
	inputs, err := json.Marshal(archives)
	if err != nil {
		return err
	}
	b.apt, err = apt.Open(b.ctx, filepath.Join(b.CacheDir, "apt", digest(inputs)[7:31]), b.recipe.Arch, archives)
	if err != nil {
		return err
	}
	if b.Lock != nil {
		b.lock = *b.Lock
		if want := b.lockKey(); b.lock.Recipe != want {
			return stale{}
		}
	} else if b.lock, err = b.solve(); err != nil {
		return err
	}
	epoch, err := b.lock.Epoch()
	if err != nil {
		return err
	}
	b.epoch = epoch.Unix()
	if now := time.Now(); now.Before(epoch) {
		return fmt.Errorf("the clock says %s, but the packages are from %s: set the clock", now.UTC().Format(time.RFC3339), epoch.UTC().Format(time.RFC3339))
	}
	return b.fetch()
}

// stale is a lock that belongs to another recipe.
type stale struct{}

func (stale) Error() string { return "the lock was made for other packages than the site asks for now" }
func (stale) Hint() string  { return "run 'caisson lock --update' and look at what changes" }

// lockKey hashes the parts of the recipe that decide which packages are chosen.
func (b *build) lockKey() string {
	data, _ := json.Marshal(map[string]any{"arch": b.recipe.Arch, "base": b.recipe.Base, "names": b.baseNames(), "packages": b.recipe.Packages})
	return digest(data)
}

// solve asks the archives.
func (b *build) solve() (Lock, error) {
	l := Lock{Recipe: b.lockKey()}
	b.say(Event{Step: "resolve", State: "start"})
	if err := b.apt.Update(b.ctx); err != nil {
		return l, err
	}
	var err error
	if l.Releases, err = b.apt.Releases(); err != nil {
		return l, err
	}
	// The same indexes and the same wishes have the same answer.
	data, err := json.Marshal(l)
	if err != nil {
		return l, err
	}
	memo := filepath.Join(b.CacheDir, "resolved", digest(data)[7:31]+".json")
	if data, err := os.ReadFile(memo); err == nil && json.Unmarshal(data, &l) == nil && len(l.Base) > 0 {
		return l, nil
	}
	names := append([]string{"?essential", "apt"}, b.baseNames()...)
	if l.Base, err = b.apt.Resolve(b.ctx, apt.Request{Install: names}); err != nil {
		return l, err
	}
	p := b.recipe.Packages
	if len(p.Install) > 0 || p.Upgrade {
		l.Packages, err = b.apt.Resolve(b.ctx, apt.Request{Install: packages.Wanted(p), Upgrade: p.Upgrade, AllowDowngrade: p.AllowDowngrade,
			Recommends: p.Recommends, Hold: p.Hold, Installed: l.Base, Manual: b.baseNames()})
		if err != nil {
			return l, err
		}
	}
	for _, list := range [][]apt.Deb{l.Base, l.Packages} {
		sort.Slice(list, func(i, j int) bool { return list[i].Name < list[j].Name })
	}
	if data, err = json.Marshal(l); err != nil {
		return l, err
	}
	return l, os.WriteFile(memo, data, 0o644)
}

// fetch gets the package files that the steps will need.
func (b *build) fetch() error {
	all := append(append([]apt.Deb{}, b.lock.Base...), b.lock.Packages...)
	return b.debs.Fetch(b.ctx, b.apt, all, func(d apt.Deb, n, of int, bytes int64) {
		b.say(Event{Step: "resolve", State: "fetch", N: n, Of: of, Bytes: bytes, Text: d.Name})
	})
}
