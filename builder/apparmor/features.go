// SPDX-License-Identifier: Apache-2.0

package apparmor

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"

	"github.com/caisson-os/caisson/internal/digest"
)

// Features is what a kernel's AppArmor can do, in the parser's own format: the
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
		var known []string
		entries, _ := tables.ReadDir("features") // it is embedded
		for _, e := range entries {
			known = append(known, e.Name())
		}
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
