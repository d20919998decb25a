// SPDX-License-Identifier: Apache-2.0

package media

import (
	"io"
	"time"

	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/media/iso"
)

// WriteRescue writes a CD that carries a statement which lets somebody into a node, see package
// trust/rescue; the same bytes are a stick's. Nothing boots from it. w reads as zeros.
func WriteRescue(w io.WriterAt, statement []byte, date time.Time) error {
	return iso.Data(w, paths.RescueLabel, paths.RescueFile, date, statement)
}
