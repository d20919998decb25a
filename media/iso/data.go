// SPDX-License-Identifier: Apache-2.0

package iso

import (
	"encoding/binary"
	"io"
	"time"
)

// Data writes an image that nothing boots from: one file, whose name has no extension. w reads
// as zeros, and is made as long as the image is.
func Data(w io.WriterAt, label, name string, date time.Time, content []byte) error {
	i := Image{Label: label, Date: date}
	sectors := (int64(len(content)) + Sector - 1) / Sector
	root := append(i.record("\x00", rootAt, Sector, isFolder), i.record("\x01", rootAt, Sector, isFolder)...)
	root = append(root, i.record(name+".;1", dataAt, int64(len(content)), 0)...)
	volume := i.volume()
	both32(volume[80:], dataAt+sectors)
	for at, data := range map[int64][]byte{
		volumeAt: volume, bootAt: append([]byte{255}, descriptor...), // the end of the descriptors: there is no boot record
		littleAt: pathTable(binary.LittleEndian), bigAt: pathTable(binary.BigEndian), rootAt: root, dataAt: content,
	} {
		if _, err := w.WriteAt(append(data, make([]byte, -len(data)&(Sector-1))...), at*Sector); err != nil {
			return err
		}
	}
	return nil
}

// dataAt is the sector of the file.
const dataAt = rootAt + 1
