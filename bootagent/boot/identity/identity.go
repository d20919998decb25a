// SPDX-License-Identifier: Apache-2.0

// Package identity finds out which node this machine claims to be: the name on
// the kernel command line, the hardware addresses of its interfaces (the one it
// booted from first) and the SMBIOS UUID. A claim is only a hint of what to ask
// for; the signed overlay says whether it was true. See package trust.
package identity

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/items/item/netif"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec/rules"
)

// CommandLine splits the kernel's command line. Quotes keep blanks together,
// see bootparam(7).
func CommandLine(text string) []string {
	var words []string
	var word strings.Builder
	quoted := false
	for _, r := range strings.TrimSpace(text) + " " {
		switch {
		case r == '"':
			quoted = !quoted
			word.WriteRune(r)
		case (r == ' ' || r == '\t' || r == '\n') && !quoted:
			if word.Len() > 0 {
				words = append(words, word.String())
				word.Reset()
			}
		default:
			word.WriteRune(r)
		}
	}
	if word.Len() > 0 { // an open quote at the end
		words = append(words, word.String())
	}
	return words
}

// Option returns the value of the last name=value word, as the kernel does.
func Option(words []string, name string) string {
	for _, w := range slices.Backward(words) {
		if value, ok := strings.CutPrefix(w, name+"="); ok {
			return strings.Trim(value, `"`)
		}
	}
	return ""
}

// Seconds returns the duration that a name=seconds word gives, or usual where no word
// gives a number from 0 to a day.
func Seconds(words []string, name string, usual time.Duration) time.Duration {
	n, err := strconv.ParseUint(Option(words, name), 10, 32)
	if err != nil || n > 86400 {
		return usual
	}
	return time.Duration(n) * time.Second
}

// Look reads the machine below sys (/sys). The address that it booted from comes
// first; a UUID that is an obvious filler of the firmware counts as none.
func Look(words []string, sys string) trust.Identity {
	m := trust.Identity{Node: Option(words, "caisson.node")}
	if boot := Option(words, "BOOTIF"); boot != "" {
		// pxelinux writes the hardware type before the address: 01-52-54-00-…
		mac := strings.ToLower(strings.ReplaceAll(boot, "-", ":"))
		if strings.Count(mac, ":") == 6 {
			_, mac, _ = strings.Cut(mac, ":")
		}
		m.MACs = append(m.MACs, mac)
	}
	cards, _ := filepath.Glob(filepath.Join(sys, "class/net/*/address")) // the pattern is valid
	for _, card := range cards {
		dir := filepath.Dir(card)
		if _, err := os.Stat(filepath.Join(dir, "device")); err != nil {
			continue // lo, bonds and the like do not identify the machine
		}
		mac := strings.ToLower(netif.Address(sys, filepath.Base(dir)))
		if mac != "" && mac != "00:00:00:00:00:00" && !slices.Contains(m.MACs, mac) {
			m.MACs = append(m.MACs, mac)
		}
	}
	data, _ := os.ReadFile(filepath.Join(sys, "class/dmi/id/product_uuid")) // "" where there is none
	uuid := strings.ToLower(strings.TrimSpace(string(data)))
	if len(uuid) == 36 && rules.MachineUUID(uuid) == nil {
		m.UUIDs = append(m.UUIDs, uuid)
	}
	return m
}
