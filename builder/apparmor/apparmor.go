// SPDX-License-Identifier: Apache-2.0

// Package apparmor compiles profiles at build time, with the layer's own
// apparmor_parser(8) in the layer's own root, for the layer's own kernel.
//
// The parser is always given the features of that kernel as a file: left alone
// it asks the build host's kernel, and where that has no AppArmor it silently
// makes weaker policy. The node loads the binaries as they are; it never
// compiles. The features travel beside them, so that the node can refuse what
// its kernel does not know.
package apparmor

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"sort"
	"strings"

	"github.com/caisson-os/caisson/builder/root"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// FeaturesFile is where the features lie in the layer.
const FeaturesFile = paths.AppArmorDir + "/features"

const (
	sources = "/etc/apparmor.d"
	parser  = "/usr/sbin/apparmor_parser"
)

// Check refuses profiles whose files could not lie side by side. It needs no tree.
func Check(a spec.AppArmor) error {
	var problems []error
	seen := map[string]bool{}
	for _, p := range a.Profiles {
		if err := rules.ProfileFile(p.File); err != nil {
			problems = append(problems, fmt.Errorf("profile file: %w", err))
		}
		if seen[p.File] {
			problems = append(problems, fmt.Errorf("profile file %q: named twice", p.File))
		}
		seen[p.File] = true
	}
	return errors.Join(problems...)
}

// Bake writes the profiles and their binaries into r.
func Bake(ctx context.Context, r *root.Root, a spec.AppArmor, features Features) (spec.LoadedPolicy, error) {
	var policy spec.LoadedPolicy
	if len(a.Profiles) == 0 {
		return policy, nil
	}
	if err := Check(a); err != nil {
		return policy, err
	}
	if _, err := r.Lstat(parser); err != nil {
		return policy, errors.New("profiles need the layer's own apparmor_parser: add package apparmor")
	}
	if err := r.WriteFile(FeaturesFile, features, 0o644); err != nil {
		return policy, err
	}
	policy.Features = features.Digest()
	names := map[string]string{}
	var own []spec.Profile
	for _, p := range a.Profiles {
		if !rules.IsIncluded(p.File) {
			own = append(own, p)
		} else if err := r.WriteFile(path.Join(sources, p.File), []byte(p.Text), 0o644); err != nil {
			return policy, err
		}
	}
	shipped, err := bakeStock(ctx, r, own)
	if err != nil {
		return policy, err
	}
	for _, l := range shipped {
		names[l.Name] = l.File
	}
	policy.Profiles = shipped
	for _, p := range own {
		if err := r.WriteFile(path.Join(sources, p.File), []byte(p.Text), 0o644); err != nil {
			return policy, err
		}
	}
	for _, p := range own {
		loaded, err := compile(ctx, r, p.File, a.Complain)
		if errors.Is(err, errNoProfile) && variables.MatchString(p.Text) {
			continue // other files include it
		}
		if err != nil {
			return policy, err
		}
		for _, l := range loaded {
			if other, twice := names[l.Name]; twice {
				return policy, fmt.Errorf("profile %q is defined in %s and in %s: the later would replace the earlier in the kernel", l.Name, other, p.File)
			}
			names[l.Name] = p.File
		}
		policy.Profiles = append(policy.Profiles, loaded...)
	}
	sort.Slice(policy.Profiles, func(i, j int) bool { return policy.Profiles[i].Name < policy.Profiles[j].Name })
	return policy, nil
}

// variables matches a file that defines some, as those in tunables do.
var variables = regexp.MustCompile(`(?m)^\s*@\{\w+\}\s*\+?=`)

// Replaced lists the site's profiles that lie where a package of r has its own.
func Replaced(r *root.Root, a spec.AppArmor) []string {
	return plain.Pick(a.Profiles, func(p spec.Profile) (string, bool) {
		_, err := r.Lstat(path.Join(sources, p.File))
		return p.File, err == nil && !rules.IsIncluded(p.File)
	})
}

// binaryOf is where the binary of a file lies.
func binaryOf(file string) string { return path.Join(paths.AppArmorDir, file+".bin") }

// compile makes one binary and says which profiles it holds.
func compile(ctx context.Context, r *root.Root, file string, complain bool) ([]spec.LoadedProfile, error) {
	args := []string{"apparmor_parser", "--skip-kernel-load", "--skip-cache", "--features-file=" + FeaturesFile,
		"--ofile=" + binaryOf(file)}
	if complain {
		args = append(args, "--Complain")
	}
	err := r.Run(ctx, root.Command{Args: append(args, path.Join(sources, file))})
	if exit, ok := errors.AsType[*root.ExitError](err); ok {
		return nil, fmt.Errorf("profile %s: %s", file, parserSays(exit.Output))
	}
	if err != nil {
		return nil, err
	}
	return made(r, file)
}

// made returns the profiles in what the parser made of a file. A binary without any is removed.
func made(r *root.Root, file string) ([]spec.LoadedProfile, error) {
	binary := binaryOf(file)
	data, err := r.ReadFile(binary)
	if err != nil {
		return nil, fmt.Errorf("profile %s: the parser made no binary: %w", file, err)
	}
	if err := r.Chmod(binary, 0o644); err != nil {
		return nil, err
	}
	profiles, err := Profiles(data)
	if errors.Is(err, errNoProfile) {
		if err := r.Remove(binary); err != nil {
			return nil, err
		}
	}
	if err != nil {
		return nil, fmt.Errorf("profile %s: %w", file, err)
	}
	for i := range profiles {
		profiles[i].File = binary
	}
	return profiles, nil
}

// parserSays drops the parser's warnings, and its name in front of its reasons.
func parserSays(output string) string {
	var lines []string
	for line := range strings.Lines(output) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "Warning") {
			lines = append(lines, strings.TrimPrefix(line, "AppArmor parser error for "))
		}
	}
	return strings.Join(lines, "; ")
}

// The binary's elements, as the kernel's policy_unpack.c reads them.
const (
	tagU32    = 2
	tagName   = 4
	tagString = 5
	tagStruct = 7
)

// modes are the kernel's names of the numbers in a profile's flags.
var modes = map[uint32]string{0: "enforce", 1: "complain", 2: "kill", 3: "unconfined", 4: "prompt"}

// forced is set in the header's version when the parser ran with --Complain: the
// kernel then ignores the profiles' own modes.
const forced = 0x800

var errNoProfile = errors.New("the file defines no profile")

// Profiles lists the profiles (hats too) in a compiled policy with their modes,
// under the names that the kernel will list them by.
func Profiles(policy []byte) ([]spec.LoadedProfile, error) {
	profile := append(named("profile"), tagStruct)
	flags := append(named("flags"), tagStruct)
	version := append(named("version"), tagU32)
	complain := false
	namespace := named("namespace")
	if bytes.Contains(policy, namespace) {
		return nil, errors.New("profiles in a namespace of their own are not supported")
	}
	var all []spec.LoadedProfile
	rest := policy
	for {
		i := bytes.Index(rest, profile)
		if i < 0 {
			break
		}
		// A header stands before each profile that is not a hat.
		if v := bytes.Index(rest[:i], version); v >= 0 && v+len(version)+4 <= i {
			complain = binary.LittleEndian.Uint32(rest[v+len(version):])&forced != 0
		}
		rest = rest[i+len(profile):]
		name, after, ok := readString(rest)
		if !ok {
			return nil, errors.New("the compiled policy is cut short after a profile's mark")
		}
		rest = after
		j := bytes.Index(rest, flags)
		if j < 0 || len(rest) < j+len(flags)+10 {
			return nil, fmt.Errorf("the compiled policy has no flags for profile %q", name)
		}
		f := rest[j+len(flags):] // hat, mode, audit: three numbers, each with its tag
		if f[0] != tagU32 || f[5] != tagU32 {
			return nil, fmt.Errorf("the compiled policy has unreadable flags for profile %q", name)
		}
		mode, known := modes[binary.LittleEndian.Uint32(f[6:])]
		if !known {
			return nil, fmt.Errorf("profile %q has mode %d, which no kernel lists", name, binary.LittleEndian.Uint32(f[6:]))
		}
		if complain {
			mode = "complain"
		}
		all = append(all, spec.LoadedProfile{Name: name, Mode: mode})
	}
	if len(all) == 0 {
		return nil, errNoProfile
	}
	return all, nil
}

// named is the tag of an element that has a name.
func named(name string) []byte {
	b := []byte{tagName}
	b = binary.LittleEndian.AppendUint16(b, uint16(len(name)+1))
	return append(append(b, name...), 0)
}

func readString(b []byte) (string, []byte, bool) {
	if len(b) < 4 || b[0] != tagString {
		return "", nil, false
	}
	n := int(binary.LittleEndian.Uint16(b[1:]))
	if n < 1 || len(b) < 3+n || b[3+n-1] != 0 {
		return "", nil, false
	}
	return string(b[3 : 3+n-1]), b[3+n:], true
}

// service is the unit with which Debian's package loads profiles at boot, from text: the
// longest single wait of a small node's boot.
const service = "/etc/systemd/system/apparmor.service"

// compileAll compiles each file that it is given, two at a time, in one run.
const compileAll = `umask 022; printf '%s\n' "$@" | xargs -P 2 -I {} \
  apparmor_parser --skip-kernel-load --skip-cache --features-file=` + FeaturesFile + ` \
  --ofile=` + paths.AppArmorDir + `/{}.bin ` + sources + `/{}`

// bakeStock compiles the profiles that packages brought, so that the node loads
// them like the site's own, and keeps apparmor.service from parsing them again at
// each boot. own are the files of the site's profiles.
func bakeStock(ctx context.Context, r *root.Root, own []spec.Profile) ([]spec.LoadedProfile, error) {
	files, err := stock(r, own)
	if err != nil {
		return nil, err
	}
	if err := r.Symlink("/dev/null", service); err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, nil
	}
	err = r.Run(ctx, root.Command{Args: append([]string{"/bin/sh", "-c", compileAll, "sh"}, files...)})
	if exit, ok := errors.AsType[*root.ExitError](err); ok {
		return nil, fmt.Errorf("profiles of the layer's packages: %s", parserSays(exit.Output))
	}
	if err != nil {
		return nil, err
	}
	var all []spec.LoadedProfile
	for _, file := range files {
		profiles, err := made(r, file)
		if err != nil && !errors.Is(err, errNoProfile) { // MariaDB's has only comments
			return nil, err
		}
		all = append(all, profiles...)
	}
	return all, nil
}

// stock lists the profile files of packages, without those that an administrator
// or a package has switched off (aa-disable(8)).
func stock(r *root.Root, own []spec.Profile) ([]string, error) {
	names, err := r.ReadDir(sources)
	if err != nil {
		return nil, err
	}
	off, err := r.ReadDir(path.Join(sources, "disable"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return slices.DeleteFunc(names, func(name string) bool {
		info, err := r.Lstat(path.Join(sources, name))
		return err != nil || !info.Mode().IsRegular() || rules.ID(name) != nil || strings.Contains(name, ".dpkg-") || name == "README" ||
			slices.Contains(off, name) || slices.ContainsFunc(own, func(p spec.Profile) bool { return p.File == name })
	}), nil
}

// Features lists the features of a kernel's AppArmor, in the parser's own format: the
// tree below /sys/kernel/security/apparmor/features as nested braces.
type Features []byte

// tables were read from running kernels, one file a series: 6.1 and 6.12 are Debian's, 6.8
// is Ubuntu's, which has patches of its own.
//
//go:embed features
var tables embed.FS

var series = regexp.MustCompile(`^(\d+)\.(\d+)`)

// FeaturesOf returns the features of a kernel release. A series without a table
// is an error: guessing would make weaker policy, or policy that does not load.
func FeaturesOf(release string) (Features, error) {
	s := series.FindString(release)
	text, err := tables.ReadFile("features/" + s)
	if s == "" || err != nil {
		entries, _ := tables.ReadDir("features") // it is embedded
		known := plain.Each(entries, fs.DirEntry.Name)
		return nil, fmt.Errorf("kernel %q: no AppArmor feature table for its series; there are %s", release, strings.Join(known, ", "))
	}
	return text, nil
}

// Digest names the features.
func (f Features) Digest() string { return digest.Of(f) }

// Tables names all tables together: policy is made again when one changes.
func Tables() string {
	sum := sha256.New()
	entries, _ := tables.ReadDir("features") // it is embedded
	for _, e := range entries {
		text, _ := tables.ReadFile("features/" + e.Name()) // it is embedded
		sum.Write(text)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// Reads lists what [Bake] and the parser read of a layer, unless a profile
// [LeadsOut].
func Reads() []string {
	return []string{sources, "/etc/apparmor", "/usr/share/apparmor", "/usr/share/apparmor-features", parser, paths.AppArmorDir}
}

// absolute matches an include by path, see apparmor.d(5).
var absolute = regexp.MustCompile(`(?m)^\s*#?include\s+(if\s+exists\s+)?"?/`)

// LeadsOut reports whether a profile includes a file by its path, which can be
// anywhere in the layer.
func LeadsOut(profile string) bool { return absolute.MatchString(profile) }

// AnyLeadsOut reports whether a file below /etc/apparmor.d does.
func AnyLeadsOut(r *root.Root) (bool, error) { return anyLeadsOut(r, sources) }

func anyLeadsOut(r *root.Root, dir string) (bool, error) {
	names, err := r.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for _, name := range names {
		at := path.Join(dir, name)
		info, err := r.Lstat(at)
		if err != nil {
			return false, err
		}
		switch {
		case info.IsDir():
			if found, err := anyLeadsOut(r, at); found || err != nil {
				return found, err
			}
		case info.Mode()&fs.ModeType == 0:
			text, err := r.ReadFile(at)
			if err != nil {
				return false, err
			}
			if LeadsOut(string(text)) {
				return true, nil
			}
		}
	}
	return false, nil
}
