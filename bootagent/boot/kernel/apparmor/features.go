// SPDX-License-Identifier: Apache-2.0

package apparmor

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// maxFeatures caps the features file and each file of the kernel's tree.
const maxFeatures = 64 << 10

// supported refuses a policy that was compiled against features which this kernel
// does not have: the kernel would ignore those rules, or the whole policy.
func supported(root string, policy spec.LoadedPolicy) error {
	text, err := read(filepath.Join(root, paths.AppArmorDir, "features"))
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
	text, err := read(filepath.Join(Kernel, "features", path))
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

func read(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() // only read
	data, err := io.ReadAll(io.LimitReader(f, maxFeatures+1))
	if err == nil && len(data) > maxFeatures {
		err = fmt.Errorf("%s has more than %d bytes", name, maxFeatures)
	}
	return data, err
}
