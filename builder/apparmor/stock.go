// SPDX-License-Identifier: Apache-2.0

package apparmor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/builder/root"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// service is what Debian's package loads profiles with at boot, from text: the
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
	var exit *root.ExitError
	if errors.As(err, &exit) {
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
