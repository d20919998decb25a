// SPDX-License-Identifier: Apache-2.0

// Package apparmor loads profiles that were compiled at build time into the
// kernel, and compares what the kernel has with what the layer says. There is
// no parser on the node: see apparmor(7) and the files of securityfs below
// apparmor/. Only bootagent/boot/initramfs
// and bootagent/node/look import it.
package apparmor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Kernel is where the kernel shows AppArmor; a variable so that tests can give
// it a directory.
var Kernel = "/sys/kernel/security/apparmor"

// maxPolicy caps one compiled file; the largest seen in the wild has under 2 MiB.
const maxPolicy = 16 << 20

// Load writes the compiled files, below root, into the kernel and returns how
// many profiles they hold. Loading a profile again replaces it. What this kernel
// cannot enforce as it was compiled is not loaded at all.
func Load(root string, policy spec.LoadedPolicy) (int, error) {
	if _, err := os.Stat(Kernel); errors.Is(err, fs.ErrNotExist) {
		return 0, refusal.New(refusal.AppArmor, "the layer has %d AppArmor profiles and this kernel has no AppArmor", len(policy.Profiles))
	}
	if err := supported(root, policy); err != nil {
		return 0, err
	}
	done := map[string]bool{}
	for _, p := range policy.Profiles {
		if done[p.File] {
			continue
		}
		done[p.File] = true
		if err := loadFile(filepath.Join(root, p.File)); err != nil {
			return 0, fmt.Errorf("load AppArmor profile %s: %w", p.Name, err)
		}
	}
	return len(policy.Profiles), nil
}

func loadFile(name string) error {
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	if info.Size() > maxPolicy {
		return fmt.Errorf("%s has %d bytes, at most %d are loaded", name, info.Size(), maxPolicy)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(Kernel, ".replace"), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()        // the kernel answers the write
	_, err = f.Write(data) // in one write, or the kernel takes it for several policies
	return err
}

// Loaded reads the kernel's list: profile name → mode.
func Loaded() (map[string]string, error) {
	data, err := os.ReadFile(filepath.Join(Kernel, "profiles"))
	if err != nil {
		return nil, err
	}
	return parse(string(data)), nil
}

// parse reads lines such as "/usr/sbin/tcpdump (enforce)"; names may hold blanks.
func parse(text string) map[string]string {
	modes := map[string]string{}
	for _, line := range strings.Split(text, "\n") {
		if i := strings.LastIndex(line, " ("); i > 0 {
			modes[line[:i]] = strings.TrimSuffix(line[i+2:], ")")
		}
	}
	return modes
}

// Check returns how the kernel differs from the layer.
func Check(policy spec.LoadedPolicy) ([]spec.Drift, error) {
	if len(policy.Profiles) == 0 {
		return nil, nil
	}
	have, err := Loaded()
	if err != nil {
		return nil, err
	}
	var drift []spec.Drift
	for _, p := range policy.Profiles {
		if mode := have[p.Name]; mode != p.Mode {
			d := spec.Drift{Item: "apparmor", Key: p.Name, From: mode, To: p.Mode, Action: spec.ActionChange}
			if mode == "" {
				d.Action = spec.ActionAdd
			}
			drift = append(drift, d)
		}
	}
	return drift, nil
}
