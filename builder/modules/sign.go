// SPDX-License-Identifier: Apache-2.0

package modules

import (
	"crypto"
	"crypto/x509"
	"encoding/binary"
	"slices"

	"github.com/caisson-os/caisson/internal/cms"
)

// mark ends a signed module, see Documentation/admin-guide/module-signing.rst of the kernel.
const mark = "~Module signature appended~\n"

// inPKCS7 is the kind of a signature that names its key and algorithms itself.
const inPKCS7 = 2

// Sign appends a signature to a module.
func Sign(module []byte, key crypto.Signer, certificate *x509.Certificate) ([]byte, error) {
	signature, err := cms.Detached(key, certificate, module)
	if err != nil {
		return nil, err
	}
	end := binary.BigEndian.AppendUint32([]byte{0, 0, inPKCS7, 0, 0, 0, 0, 0}, uint32(len(signature))) // struct module_signature
	return slices.Concat(module, signature, end, []byte(mark)), nil
}
