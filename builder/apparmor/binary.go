// SPDX-License-Identifier: Apache-2.0

package apparmor

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/caisson-os/caisson/spec"
)

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
