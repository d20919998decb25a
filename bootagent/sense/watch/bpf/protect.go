// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"
	"os"
	"slices"
)

// Protect has the kernel refuse writes of keys from now on, by everybody but the exempt
// process, and no longer those of other keys. It holds until it is asked for something
// else, whoever runs; without keys nothing is left of it. The new program is attached
// before the one that was there goes: no key is unprotected in between.
func Protect(cgroup *os.File, keys []string) error {
	old, err := attached(protectorName, cgroup)
	if err != nil {
		if len(keys) == 0 {
			return nil // a kernel that cannot say what is attached has nothing attached
		}
		return fmt.Errorf("ask for BPF programs: %w", err)
	}
	defer func() {
		for _, l := range old {
			l.close()
		}
	}()
	if len(keys) > 0 {
		if err := protect(cgroup, keys); err != nil {
			return err
		}
	}
	var errs []error
	for _, l := range old {
		errs = append(errs, detach(l.prog, cgroup))
	}
	return errors.Join(errs...)
}

func protect(cgroup *os.File, keys []string) error {
	if i := slices.IndexFunc(keys, func(k string) bool { return len(k) > MaxKey }); i >= 0 {
		return fmt.Errorf("protect %s: its name is too long", keys[i])
	}
	table, own, err := tables(keys, func(string) uint32 { return flagProtected })
	if err != nil {
		return err
	}
	l := loaded{maps: []int{table, own}, prog: -1}
	defer func() { l.close() }()
	if err := exempt(own, os.Getpid()); err != nil {
		return err
	}
	if l.prog, err = load(protectorName, protector(table, own)); err != nil {
		return err
	}
	if err := attach(l.prog, cgroup); err != nil {
		return fmt.Errorf("attach BPF program %s: %w", protectorName, err)
	}
	return nil
}

// Protects reports whether something is protected.
func Protects(cgroup *os.File) bool {
	found, err := attached(protectorName, cgroup)
	for _, l := range found {
		l.close()
	}
	return err == nil && len(found) > 0
}

// Exempt lets a process write what is protected, and nobody else; 0 is none.
func Exempt(cgroup *os.File, pid int) error {
	found, err := attached(protectorName, cgroup)
	if err != nil {
		return nil // nothing is attached where that cannot be asked
	}
	var errs []error
	for _, l := range found {
		if len(l.maps) == 2 { // the keys, and whom they do not bind
			errs = append(errs, exempt(l.maps[1], pid))
		}
		l.close()
	}
	return errors.Join(errs...)
}
