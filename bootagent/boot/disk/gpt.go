// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Of a GUID partition table, see the UEFI specification, chapter 5.
const (
	maxEntries   = 1024
	maxEntrySize = 4096
)

// partitionUUID reads the unique UUID of a partition, counted from 1, from the
// table of a disk with sectors of the given size.
func partitionUUID(disk io.ReaderAt, sector int64, number int) (string, error) {
	header := make([]byte, 92)
	if _, err := disk.ReadAt(header, sector); err != nil {
		return "", err
	}
	if string(header[:8]) != "EFI PART" {
		return "", errors.New("no GUID partition table")
	}
	first := int64(binary.LittleEndian.Uint64(header[72:]))
	count, size := int64(binary.LittleEndian.Uint32(header[80:])), int64(binary.LittleEndian.Uint32(header[84:]))
	if first < 2 || first > 1<<32 || count > maxEntries || size < 128 || size > maxEntrySize || number < 1 || int64(number) > count {
		return "", fmt.Errorf("the partition table has no entry %d", number)
	}
	var id [16]byte
	if _, err := disk.ReadAt(id[:], first*sector+int64(number-1)*size+16); err != nil {
		return "", err
	}
	le := binary.LittleEndian
	return fmt.Sprintf("%08x-%04x-%04x-%x-%x", le.Uint32(id[0:]), le.Uint16(id[4:]), le.Uint16(id[6:]), id[8:10], id[10:]), nil
}
