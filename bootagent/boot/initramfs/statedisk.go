// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/paths"
)

// findState returns the device of the partition named paths.StateLabel, "" when
// there is none. Two of that name are an error: one of them is somebody else's.
func findState(sys string) (string, error) {
	files, err := filepath.Glob(filepath.Join(sys, "class/block/*/uevent"))
	if err != nil {
		return "", err
	}
	var found []string
	for _, file := range files {
		fields := uevent(file)
		if fields["PARTNAME"] == paths.StateLabel && fields["DEVNAME"] != "" {
			found = append(found, "/dev/"+fields["DEVNAME"])
		}
	}
	switch len(found) {
	case 0:
		return "", nil
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("partitions %s are all named %s", strings.Join(found, " and "), paths.StateLabel)
}

func uevent(file string) map[string]string {
	fields := map[string]string{}
	f, err := os.Open(file)
	if err != nil {
		return fields // the device has gone
	}
	defer f.Close() // only read
	for s := bufio.NewScanner(f); s.Scan(); {
		if name, value, ok := strings.Cut(s.Text(), "="); ok {
			fields[name] = value
		}
	}
	return fields
}

// waitState looks for the state partition until it is there, or for as long as
// disks take to appear once their drivers are loaded.
func waitState(sys string, patience time.Duration) (string, error) {
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		device, err := findState(sys)
		if device != "" || err != nil || time.Now().After(end) {
			return device, err
		}
	}
}

// mountState mounts the state partition. ext4 is in every loader, xfs where the
// site names its module.
func mountState(device, at string) error {
	if err := os.MkdirAll(at, 0o700); err != nil {
		return err
	}
	var errs []error
	for _, kind := range []string{"ext4", "xfs"} {
		err := unix.Mount(device, at, kind, unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOATIME, "")
		if err == nil {
			return nil
		}
		errs = append(errs, fmt.Errorf("mount %s as %s: %w", device, kind, err))
	}
	return errors.Join(errs...)
}
