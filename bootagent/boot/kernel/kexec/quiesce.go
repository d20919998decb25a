// SPDX-License-Identifier: Apache-2.0

package kexec

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Quiesce takes the drivers off the network cards below sys (/sys). A card that
// is left alone goes on writing what arrives into the buffers that the old kernel
// gave it, which are the new kernel's memory: virtio-net has no shutdown of its
// own before Linux 6.15, and a guest that was spoken to during a kexec died of it.
// Unbinding resets the device; the new kernel finds it as after power-on.
func Quiesce(sys string) error {
	cards, err := filepath.Glob(filepath.Join(sys, "class/net/*/device"))
	if err != nil {
		return err
	}
	var errs []error
	for _, link := range cards {
		device, err := filepath.EvalSymlinks(link)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		unbind := filepath.Join(device, "driver", "unbind")
		if err := os.WriteFile(unbind, []byte(filepath.Base(device)), 0); err != nil {
			errs = append(errs, fmt.Errorf("take the driver off %s: %w", filepath.Base(filepath.Dir(link)), err))
		}
	}
	return errors.Join(errs...)
}
