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
	"context"
	"errors"
	"fmt"
	"path"
	"regexp"
	"sort"
	"strings"

	"github.com/caisson-os/caisson/builder/root"
	"github.com/caisson-os/caisson/internal/paths"
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
	if err := r.WriteFile(FeaturesFile, features.Text, 0o644); err != nil {
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
	var files []string
	for _, p := range a.Profiles {
		if _, err := r.Lstat(path.Join(sources, p.File)); err == nil && !rules.IsIncluded(p.File) {
			files = append(files, p.File)
		}
	}
	return files
}

// compile makes one binary and says which profiles it holds.
func compile(ctx context.Context, r *root.Root, file string, complain bool) ([]spec.LoadedProfile, error) {
	binary := path.Join(paths.AppArmorDir, file+".bin")
	args := []string{"apparmor_parser", "--skip-kernel-load", "--skip-cache", "--features-file=" + FeaturesFile,
		"--ofile=" + binary}
	if complain {
		args = append(args, "--Complain")
	}
	err := r.Run(ctx, root.Command{Args: append(args, path.Join(sources, file))})
	var exit *root.ExitError
	if errors.As(err, &exit) {
		return nil, fmt.Errorf("profile %s: %s", file, parserSays(exit.Output))
	}
	if err != nil {
		return nil, err
	}
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
