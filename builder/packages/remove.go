// SPDX-License-Identifier: Apache-2.0

package packages

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/builder/root"
	"github.com/caisson-os/caisson/spec"
)

// remove takes out what must not be there: the blacklist, and with strict all
// that nobody asked for and nothing needs. What the layer boots with, what is
// asked for and the whitelist are never removed: that is an error.
func remove(ctx context.Context, r *root.Root, p spec.Packages, keep []string, get func(...string) error) error {
	installed, err := Installed(r)
	if err != nil {
		return err
	}
	wanted := append(append([]string{}, keep...), p.Whitelist...)
	for _, pkg := range p.Install {
		wanted = append(wanted, pkg.Name)
	}
	purge := slices.DeleteFunc(slices.Clone(p.Blacklist), func(name string) bool {
		return !slices.ContainsFunc(installed, func(pkg spec.InstalledPackage) bool { return pkg.Name == name })
	})
	if len(purge) > 0 {
		if err := checkPurge(ctx, r, purge, wanted); err != nil {
			return err
		}
		if err := get(append([]string{"purge", "--"}, purge...)...); err != nil {
			return fmt.Errorf("remove %s: %w", strings.Join(purge, ", "), err)
		}
	}
	if !p.Strict {
		return nil
	}
	var auto []string
	for _, pkg := range installed {
		if !slices.Contains(wanted, pkg.Name) && !slices.Contains(purge, pkg.Name) {
			auto = append(auto, pkg.Name)
		}
	}
	if len(auto) > 0 {
		if err := r.Run(ctx, root.Command{Args: append([]string{"apt-mark", "auto", "--"}, auto...)}); err != nil {
			return fmt.Errorf("mark unrequested packages: %w", root.Said(err))
		}
	}
	if err := get("autoremove", "--purge", "-o", "APT::AutoRemove::RecommendsImportant=false", "-o",
		"APT::AutoRemove::SuggestsImportant=false"); err != nil {
		return fmt.Errorf("remove unrequested packages: %w", err)
	}
	return nil
}

// checkPurge asks apt what else would go.
func checkPurge(ctx context.Context, r *root.Root, purge, wanted []string) error {
	var victims []string
	err := r.Run(ctx, root.Command{
		Args: append([]string{"apt-get", "--simulate", "--yes", "purge", "--"}, purge...),
		Line: func(line string) {
			if f := strings.Fields(line); len(f) > 1 && (f[0] == "Purg" || f[0] == "Remv") && slices.Contains(wanted, f[1]) {
				victims = append(victims, f[1])
			}
		},
	})
	if len(victims) > 0 {
		return fmt.Errorf("blacklisted %s cannot be removed: %s needs it, and is asked for", strings.Join(purge, ", "),
			strings.Join(victims, ", "))
	}
	if err != nil {
		return fmt.Errorf("remove %s: %w", strings.Join(purge, ", "), root.Said(err))
	}
	return nil
}
