// SPDX-License-Identifier: Apache-2.0

package apparmor

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/builder/root"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// service is the unit with which Debian's package loads profiles at boot, from text: the
// longest single wait of a small node's boot.
const service = "/etc/systemd/system/apparmor.service"

// compileAll compiles each file that it is given, two at a time, in one run.
const compileAll = `umask 022; printf '%s\n' "$@" | xargs -P 2 -I {} \
  apparmor_parser --skip-kernel-load --skip-cache --features-file=` + FeaturesFile + ` --ofile=` + paths.AppArmorDir + `/{}.bin ` + sources + `/{}`

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
		binary := path.Join(paths.AppArmorDir, file+".bin")
		data, err := r.ReadFile(binary)
		if err != nil {
			return nil, fmt.Errorf("profile %s: the parser made no binary: %w", file, err)
		}
		profiles, err := Profiles(data)
		if errors.Is(err, errNoProfile) { // MariaDB's has only comments
			if err := root.RemoveGlob(r.Upper, []string{strings.TrimPrefix(binary, "/")}); err != nil {
				return nil, err
			}
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("profile %s: %w", file, err)
		}
		for i := range profiles {
			profiles[i].File = binary
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
type Features struct {
	Series string
	Text   []byte
}

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
		return Features{}, fmt.Errorf("kernel %q: no AppArmor feature table for its series; there are %s", release, strings.Join(known, ", "))
	}
	return Features{Series: s, Text: text}, nil
}

// Digest names the features.
func (f Features) Digest() string {
	return digest.Of(f.Text)
}

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
