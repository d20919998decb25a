// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/builder/accounts"
	"github.com/caisson-os/caisson/builder/apparmor"
	"github.com/caisson-os/caisson/builder/apt"
	"github.com/caisson-os/caisson/builder/base"
	"github.com/caisson-os/caisson/builder/boot"
	"github.com/caisson-os/caisson/builder/packages"
	"github.com/caisson-os/caisson/builder/root"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/mediatype"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/internal/perhost"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/packaging/systemd"
	"github.com/caisson-os/caisson/spec"
)

// Names of the steps. Those that make a tree are the names of its image, too.
const (
	stepResolve  = "resolve" // which packages: it makes no tree and is in no list
	stepBase     = "base"
	stepPackages = "packages"
	stepAccounts = spec.ImageAccounts
	stepPolicy   = "policy"
	stepAgent    = "agent"
	stepBoot     = "boot"
	stepUEFI     = "uefi"
)

// steps is the order of a build, and of the images: bottom first. What changes
// least lies lowest, so a change costs what it is.
var steps = []step{
	{name: stepBase, inputs: baseInputs, fill: fillBase},
	{name: stepPackages, above: on(stepBase), inputs: packagesInputs, fill: fillPackages},
	{name: stepAccounts, above: on(stepPackages, stepBase), inputs: accountsInputs, fill: fillAccounts},
	{name: stepPolicy, above: policyAbove, inputs: policyInputs, fill: fillPolicy, reads: policyReads},
	{name: stepAgent, inputs: agentInputs, fill: fillAgent},
	{name: stepBoot, above: on(stepPackages, stepBase), inputs: bootInputs, files: makeBoot, reads: bootReads},
	{name: stepUEFI, above: on(stepPackages, stepBase), inputs: uefiInputs, files: makeUEFI, reads: &reads{paths: []string{boot.UEFIDir}}},
}

// on is a step above others whatever the recipe says.
func on(names ...string) func(*build) []string { return func(*build) []string { return names } }

// policyAbove: only the owners of paths are the accounts' business, so a new user
// does not compile any profile again.
func policyAbove(b *build) []string {
	if b.recipe.Perm == nil {
		return []string{stepPackages, stepBase}
	}
	return []string{stepAccounts, stepPackages, stepBase}
}

func baseInputs(b *build) (any, error) {
	if b.foreign != nil {
		return b.foreign.digest, nil
	}
	return map[string]any{"base": b.recipe.Base, "debs": b.origins(b.chosen.Base), "names": b.baseAsked(), "answers": b.baseAnswers()}, nil
}

func fillBase(ctx context.Context, b *build, r *root.Root) (facts, error) {
	if b.foreign != nil {
		if err := b.unpack(ctx, r); err != nil {
			return facts{}, err
		}
		return b.installed(stepBase, r)
	}
	if err := b.fetch(ctx, func() *apt.State { return b.baseApt }, b.chosen.Base); err != nil {
		return facts{}, err
	}
	repo := filepath.Join(b.tmp, "repo-base")
	if err := b.store.Repo(repo, b.recipe.Base.Debian.Suite, b.chosen.Base); err != nil {
		return facts{}, err
	}
	var late []string
	err := base.Bootstrap(ctx, r, base.Options{Suite: b.recipe.Base.Debian.Suite, Arch: b.recipe.Arch, Repo: repo,
		Names: b.baseAsked(), Whole: b.recipe.Base.Debian.Documentation, Epoch: b.epochOf(stepBase), Line: b.counter(stepBase, len(b.chosen.Base)),
		Answer: func(ctx context.Context, r *root.Root) (err error) {
			if late, err = packages.SetUp(r, b.baseAnswers()); err != nil {
				return err
			}
			return packages.Preseed(ctx, r, b.baseAnswers())
		}})
	if err != nil {
		return facts{}, err
	}
	f, err := b.installed(stepBase, r)
	f.Late = late
	return f, err
}

// baseAnswers are the site's packages with answers to debconf that are in the base: they are
// set up there.
func (b *build) baseAnswers() []spec.Package {
	in := names(b.chosen.Base)
	return slices.DeleteFunc(slices.Clone(b.recipe.Packages.Install),
		func(p spec.Package) bool { return len(p.Debconf) == 0 || !slices.Contains(in, p.Name) })
}

func packagesInputs(b *build) (any, error) {
	from := map[string]any{"packages": b.wanted(), "debs": b.origins(b.chosen.Packages)}
	if len(b.chosen.Tools) > 0 {
		from["tools"] = b.origins(b.chosen.Tools)
		if b.options.Boot != nil {
			from["boot"] = b.options.Boot.Certificate().Raw
		}
	}
	return from, nil
}

func fillPackages(ctx context.Context, b *build, r *root.Root) (facts, error) {
	if err := b.fetch(ctx, func() *apt.State { return b.apt }, b.chosen.Packages); err != nil {
		return facts{}, err
	}
	work := filepath.Join(b.tmp, "unpacked")
	if err := os.Mkdir(work, 0o700); err != nil {
		return facts{}, err
	}
	defer os.RemoveAll(work)                                     // the next build clears what is left
	plain, err := b.store.Unpacked(ctx, b.chosen.Packages, work) // the next build installs most of them again
	if err != nil {
		return facts{}, err
	}
	repo := filepath.Join(b.tmp, "repo-packages")
	if err := b.store.Repo(repo, "caisson", plain); err != nil {
		return facts{}, err
	}
	var late []string
	if b.foreign != nil {
		if late, err = packages.SetUp(r, b.recipe.Packages.Install); err != nil {
			return facts{}, err
		}
	}
	install := func() error {
		return packages.Install(ctx, r, b.wanted(), b.baseNames(),
			packages.Locked{Repo: repo, Debs: b.chosen.Packages, Line: b.counter(stepPackages, len(b.chosen.Packages))})
	}
	if len(b.chosen.Tools) > 0 {
		err = b.withModules(ctx, r, install)
	} else {
		err = install()
	}
	if err != nil {
		return facts{}, err
	}
	unmet, err := packages.Unmet(r, packages.Names(b.recipe.Packages))
	if err != nil {
		return facts{}, err
	}
	if len(unmet) > 0 {
		b.say(Event{Step: stepPackages, State: "note", Text: "recommended, and not in the layer: " + strings.Join(unmet, "; ")})
	}
	if b.foreign != nil {
		if err := base.Configure(ctx, r); err != nil {
			return facts{}, err
		}
	}
	if err := packages.Users(ctx, r); err != nil {
		return facts{}, err
	}
	shared := perhost.Shared(os.DirFS(r.Upper))
	if err := base.Scrub(r.Upper); err != nil {
		return facts{}, err
	}
	if err := base.Bake(r); err != nil {
		return facts{}, err
	}
	f, err := b.installed(stepPackages, r)
	f.Shared, f.Late = shared, late
	return f, err
}

// installed lists what is in the tree, with the digests of the files it came from,
// and settles the numbers of the accounts it came with.
func (b *build) installed(step string, r *root.Root) (facts, error) {
	all, err := packages.Installed(r)
	if err != nil {
		return facts{}, err
	}
	from := plain.Map(slices.Concat(b.chosen.Base, b.chosen.Packages), func(d apt.Deb) (key, sum string) {
		return d.Name + " " + d.Version, d.SHA256
	})
	for i := range all {
		all[i].SHA256 = from[all[i].Name+" "+all[i].Version]
	}
	f := facts{Packages: all}
	if err := b.exactly(all); err != nil {
		return f, err
	}
	if f.Private, err = packages.FindPrivate(r); err != nil {
		return f, fmt.Errorf("look for private keys: %w", err)
	}
	err = b.number(step, r, &f)
	return f, err
}

// exactly wants of what is installed what the lock says, no more and no less. The
// rest of a foreign base is not in any lock.
func (b *build) exactly(all []spec.InstalledPackage) error {
	there := map[string]bool{}
	for _, p := range all {
		there[p.Name+" "+p.Version] = true
		if p.SHA256 == "" && b.foreign == nil {
			return fmt.Errorf("package %s %s is installed, but not in the lock", p.Name, p.Version)
		}
	}
	replaced := names(b.chosen.Packages)
	p := b.recipe.Packages
	last := b.done[stepBase].Key != "" // of the two steps that install, this is the second
	for i, list := range [][]apt.Deb{b.chosen.Base, b.chosen.Packages} {
		for _, d := range list {
			removed := last && (p.Strict || slices.Contains(p.Blacklist, d.Name) || i == 0 && slices.Contains(replaced, d.Name))
			if i == 1 && !last || removed {
				continue
			}
			if !there[d.Name+" "+d.Version] {
				return fmt.Errorf("package %s %s is in the lock, but was not installed: run 'caisson lock --update'", d.Name, d.Version)
			}
		}
	}
	return nil
}

func accountsInputs(b *build) (any, error) {
	return map[string]any{"accounts": b.recipe.Accounts, "ledger": accounts.Present(b.recipe.Accounts, b.options.Ledger)}, nil
}

func fillAccounts(ctx context.Context, b *build, r *root.Root) (facts, error) {
	passwd, err := r.ReadFile("/etc/passwd")
	if err != nil {
		return facts{}, err
	}
	brought := accounts.PeopleIn(string(passwd))
	_, err = accounts.Bake(ctx, r, b.recipe.Accounts, b.options.Ledger, b.epochOf(stepAccounts))
	return facts{Accounts: accounts.Present(b.recipe.Accounts, b.options.Ledger), Brought: brought}, err
}

// policyReads: the libraries of the parser do not enter what it writes.
var policyReads = &reads{
	paths: append(apparmor.Reads(), "/boot", "/etc/systemd/system/apparmor.service"),
	all: func(b *build) bool {
		return b.recipe.Perm != nil || slices.ContainsFunc(b.recipe.AppArmor.Profiles,
			func(p spec.Profile) bool { return apparmor.LeadsOut(p.Text) })
	},
	more: apparmor.AnyLeadsOut,
}

func policyInputs(b *build) (any, error) {
	return map[string]any{"apparmor": b.recipe.AppArmor, "perm": b.recipe.Perm, "features": apparmor.Tables(), "stock": true}, nil
}

func fillPolicy(ctx context.Context, b *build, r *root.Root) (facts, error) {
	var f facts
	if len(b.recipe.AppArmor.Profiles) > 0 {
		release, _, err := boot.Kernel(r)
		if err != nil {
			return f, err
		}
		features, err := apparmor.FeaturesOf(release)
		if err != nil {
			return f, err
		}
		if over := apparmor.Replaced(r, b.recipe.AppArmor); len(over) > 0 {
			b.say(Event{Step: stepPolicy, State: "note", Text: "profiles of packages that the site's replace: " + strings.Join(over, ", ")})
		}
		policy, err := apparmor.Bake(ctx, r, b.recipe.AppArmor, features)
		if err != nil {
			return f, err
		}
		f.AppArmor = &policy
	}
	if b.recipe.Perm != nil {
		if err := accounts.BakePerm(ctx, r, *b.recipe.Perm); err != nil {
			return f, err
		}
	}
	return f, nil
}

func agentInputs(b *build) (any, error) {
	sum, err := describe(filepath.Dir(b.options.Agent), filepath.Base(b.options.Agent), "", "")
	return map[string]any{"agent": sum.Digest, "units": unitText()}, err
}

func unitText() map[string]string {
	all := map[string]string{}
	names, _ := fs.Glob(systemd.Units, "*") // the pattern is valid
	for _, name := range names {
		data, _ := systemd.Units.ReadFile(name) // it is embedded
		all[name] = string(data)
	}
	return all
}

func fillAgent(ctx context.Context, b *build, r *root.Root) (facts, error) {
	agent, err := os.ReadFile(b.options.Agent)
	if err != nil {
		return facts{}, err
	}
	if err := r.WriteFile(paths.Agent, agent, 0o755); err != nil {
		return facts{}, err
	}
	if err := r.Symlink("../lib/caisson/caisson-agent", "/usr/bin/caisson-agent"); err != nil {
		return facts{}, err
	}
	for name, text := range unitText() {
		if err := r.WriteFile("/usr/lib/systemd/system/"+name, []byte(text), 0o644); err != nil {
			return facts{}, err
		}
	}
	for by, name := range map[string]string{"multi-user.target": paths.AgentService, "sysinit.target": paths.EarlyService} {
		if err := r.Symlink("/usr/lib/systemd/system/"+name, "/etc/systemd/system/"+by+".wants/"+name); err != nil {
			return facts{}, err
		}
	}
	return facts{}, nil
}

// bootReads lists the files that the kernel and the loader are made of; libraries of programs may
// lie anywhere.
var bootReads = &reads{paths: boot.Reads(), all: func(b *build) bool { return b.recipe.Programs }}

func bootInputs(b *build) (any, error) {
	sum, err := describe(filepath.Dir(b.options.Agent), filepath.Base(b.options.Agent), "", "")
	from := map[string]any{"agent": sum.Digest, "modules": b.recipe.Modules, "programs": b.recipe.Programs}
	if b.options.Boot != nil {
		from["boot"] = b.options.Boot.Certificate().Raw
	}
	return from, err
}

// makeBoot writes the kernel and the generic initrd.
func makeBoot(ctx context.Context, b *build, r *root.Root, dir string) ([]file, facts, error) {
	var f facts
	release, kernel, err := boot.Kernel(r)
	if err != nil {
		return nil, f, err
	}
	data, err := os.ReadFile(kernel)
	if err == nil {
		data, err = Programs(b.options.Boot)(data)
	}
	if err != nil {
		return nil, f, err
	}
	if err := durable.WriteFile(filepath.Join(dir, "kernel"), data, 0o644); err != nil {
		return nil, f, err
	}
	var report boot.Report
	err = durable.Write(filepath.Join(dir, "initrd"), 0o644, func(w io.Writer) error {
		report, err = boot.Initrd{Root: r, Release: release, Agent: b.options.Agent, Modules: b.recipe.Modules,
			Programs: b.recipe.Programs}.Write(ctx, w)
		return err
	})
	if err != nil {
		return nil, f, err
	}
	k, err := describe(dir, "kernel", "kernel", mediatype.Kernel)
	if err != nil {
		return nil, f, err
	}
	i, err := describe(dir, "initrd", "initrd", mediatype.Initrd)
	if err != nil {
		return nil, f, err
	}
	b.say(Event{Step: stepBoot, State: "note", Text: fmt.Sprintf("loader: %d modules, %.1f MB unpacked; %d firmware "+
		"files, %.1f MB; initrd %.1f MB",
		report.Modules, mb(report.ModuleBytes), report.Firmware, mb(report.FirmwareBytes), mb(i.Size))})
	if report.ProgramBytes > 0 {
		b.say(Event{Step: stepBoot, State: "note", Text: fmt.Sprintf("mke2fs and e2fsck with their libraries: %.1f MB unpacked",
			mb(report.ProgramBytes))})
	}
	if text := lacking(report); text != "" {
		b.say(Event{Step: stepBoot, State: "note", Text: text})
	}
	if b.options.Boot != nil {
		unsigned, err := boot.Unsigned(ctx, r, release)
		if err != nil {
			return nil, f, err
		}
		if len(unsigned) > 0 {
			b.say(Event{Step: stepBoot, State: "note", Text: "modules that nobody signed, which a kernel under lockdown does " +
				"not load: " + strings.Join(unsigned, ", ")})
		}
	}
	f.Kernel = &spec.KernelBlob{Release: release, Blob: k.Blob}
	f.Initrd = &i.Blob
	return []file{k, i}, f, nil
}

func uefiInputs(b *build) (any, error) { return b.recipe.Arch, nil }

// makeUEFI copies systemd's programs for firmware, where the layer has them.
func makeUEFI(_ context.Context, b *build, r *root.Root, dir string) (files []file, f facts, err error) {
	programs, err := boot.UEFI(r, b.recipe.Arch)
	if err != nil || programs == nil {
		return nil, f, err
	}
	for _, p := range programs {
		if err := durable.WriteFile(filepath.Join(dir, p.Name), p.Data, 0o644); err != nil {
			return nil, f, err
		}
		described, err := describe(dir, p.Name, p.Name, mediatype.UEFI)
		if err != nil {
			return nil, f, err
		}
		files = append(files, described)
	}
	f.UEFI = &spec.UEFI{Stub: files[0].Blob, Manager: files[1].Blob}
	return files, f, nil
}

// lacking names the modules that find no firmware, and the packages that have it.
func lacking(r boot.Report) string {
	list := plain.Pick(slices.Sorted(maps.Keys(r.Lacking)), func(name string) (string, bool) { // without a package nothing can be done
		return fmt.Sprintf("%s (package %s)", strings.Join(r.Lacking[name], ", "), name), name != ""
	})
	if list == nil {
		return ""
	}
	return "modules that find no firmware in the layer: " + strings.Join(list, "; ") +
		"; conf.apt.packages takes those of your machines, from component non-free-firmware"
}

// origins returns the part of a step's key that is of its package files: their sums, and who is held to have
// signed them. A step that was made of the same files as somebody else's is another one.
func (b *build) origins(debs []apt.Deb) []string {
	all := append([]string{}, plain.Each(debs, func(d apt.Deb) string { return d.SHA256 })...)
	for i, d := range debs {
		waived := b.options.Lock != nil && apt.Waived(d, b.options.Unsigned)
		all[i] = fmt.Sprint(all[i], d.Archive, b.chosen.SignedBy.Of(d.Archive), waived)
	}
	return all
}

func mb(n int64) float64 { return float64(n) / 1e6 }
