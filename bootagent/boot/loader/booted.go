// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf16"
)

// Variables is where the kernel shows those of the firmware, see efivarfs.
const Variables = "/sys/firmware/efi/efivars"

// countPath has the file of the loader that is on trial, see LoaderBootCountPath in
// https://systemd.io/BOOT_LOADER_INTERFACE. It lasts as long as the firmware is not started
// over: behind a kexec it is there, too.
const countPath = "LoaderBootCountPath-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"

// Booted returns the file of the loader that this boot began with, where that one is on trial,
// "" where none is. variables is [Variables].
func Booted(variables string) (file string, err error) {
	data, err := os.ReadFile(filepath.Join(variables, countPath))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil || len(data) < 4 {
		return "", err
	}
	data = data[4:] // attributes
	var units []uint16
	for ; len(data) > 1; data = data[2:] {
		if unit := binary.LittleEndian.Uint16(data); unit != 0 {
			units = append(units, unit)
		}
	}
	path := strings.ReplaceAll(string(utf16.Decode(units)), `\`, "/")
	return filepath.Base(path), nil
}
