// SPDX-License-Identifier: Apache-2.0

package root

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// appArmor is where the kernel shows AppArmor; a variable so that tests can give
// it a directory.
var appArmor = "/sys/kernel/security/apparmor"

// maxPolicy caps one compiled file; the largest seen in the wild has under 2 MiB.
const maxPolicy = 16 << 20

// LoadProfiles writes the compiled files, below root, into the kernel and returns how
// many profiles they hold. Loading a profile again replaces it. What this kernel
// cannot enforce as it was compiled is not loaded at all.
func LoadProfiles(root string, policy spec.LoadedPolicy) (int, error) {
	if _, err := os.Stat(appArmor); errors.Is(err, fs.ErrNotExist) {
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
	data, err := ownfiles.ReadPublic(name, maxPolicy)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(appArmor, ".replace"), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()        // the kernel answers the write
	_, err = f.Write(data) // in one write, or the kernel takes it for several policies
	return err
}

// profiles reads the kernel's list: profile name → mode.
func profiles() (map[string]string, error) {
	data, err := os.ReadFile(filepath.Join(appArmor, "profiles"))
	if err != nil {
		return nil, err
	}
	return parseProfiles(string(data)), nil
}

// parseProfiles reads lines such as "/usr/sbin/tcpdump (enforce)"; names may hold blanks.
func parseProfiles(text string) map[string]string {
	modes := map[string]string{}
	for _, line := range strings.Split(text, "\n") {
		if i := strings.LastIndex(line, " ("); i > 0 {
			modes[line[:i]] = strings.TrimSuffix(line[i+2:], ")")
		}
	}
	return modes
}

// CheckProfiles returns how the kernel differs from the layer.
func CheckProfiles(policy spec.LoadedPolicy) ([]spec.Drift, error) {
	if len(policy.Profiles) == 0 {
		return nil, nil
	}
	have, err := profiles()
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

// maxFeatures caps the features file and each file of the kernel's tree.
const maxFeatures = 64 << 10

// supported refuses a policy that was compiled against features which this kernel
// does not have: the kernel would ignore those rules, or the whole policy.
func supported(root string, policy spec.LoadedPolicy) error {
	text, err := ownfiles.ReadPublic(filepath.Join(root, paths.AppArmorDir, "features"), maxFeatures)
	if err != nil {
		return fmt.Errorf("features of the AppArmor policy: %w", err)
	}
	if digest.Of(text) != policy.Features {
		return refusal.New(refusal.Layer, "the layer's AppArmor features are not those that its description names")
	}
	lacking, err := lacks(string(text))
	if err != nil {
		return err
	}
	if len(lacking) > 0 {
		return refusal.New(refusal.AppArmor, "the AppArmor policy uses %s, which this kernel does not have", strings.Join(lacking, ", "))
	}
	return nil
}

// lacks returns what of text the kernel does not have. The parser's format is
// that of the tree below features/: a word before a brace is a file or a directory,
// every other word stands in the file.
func lacks(text string) ([]string, error) {
	words := strings.Fields(strings.NewReplacer("{", " { ", "}", " } ").Replace(text))
	var at, lacking []string
	for i, word := range words {
		switch {
		case word == "{":
		case word == "}":
			if len(at) == 0 {
				return nil, refusal.New(refusal.Layer, "the AppArmor features end before they begin")
			}
			at = at[:len(at)-1]
		case i+1 < len(words) && words[i+1] == "{":
			at = append(at, word)
		default:
			if path := strings.Join(at, "/"); !has(path, word) {
				lacking = append(lacking, path+" "+word)
			}
		}
	}
	if len(at) > 0 {
		return nil, refusal.New(refusal.Layer, "the AppArmor features break off")
	}
	return lacking, nil
}

// has says whether the kernel offers word in one of its feature files. A mask
// offers its bits, a version all earlier ones, and "no" is nothing to be had.
func has(path, word string) bool {
	if word == "no" {
		return true
	}
	if !filepath.IsLocal(path) {
		return false
	}
	text, err := ownfiles.ReadPublic(filepath.Join(appArmor, "features", path), maxFeatures)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(strings.Fields(string(text)), func(offered string) bool {
		want, errWant := strconv.ParseUint(word, 0, 64)
		mask, errMask := strconv.ParseUint(offered, 0, 64)
		if errWant == nil && errMask == nil {
			return want&^mask == 0
		}
		old, errOld := strconv.ParseFloat(word, 64)
		version, errVersion := strconv.ParseFloat(offered, 64)
		return offered == word || errOld == nil && errVersion == nil && old <= version
	})
}
