// SPDX-License-Identifier: Apache-2.0

package release

import (
	"regexp"
	"strings"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci"
)

// address is an artifact as other tools name it, REPOSITORY:TAG or REPOSITORY@DIGEST.
var address = regexp.MustCompile(`^(.+)/(` + oci.RepoLayer + `|` + oci.RepoNode + `|` + oci.RepoFleet + `)[:@]([^/]+)$`)

// ParseName splits what names layers into a place and a tag or digest: REF for those
// that are current, REF@VERSION, REF@sha256:DIGEST, or as other tools have it
// REF/layer:VERSION and REF/layer@sha256:DIGEST.
func ParseName(name string) (ref, reference string, err error) {
	if part := address.FindStringSubmatch(name); part != nil {
		if part[2] != oci.RepoLayer {
			return "", "", cli.Usage("a layer is REF, REF@VERSION or REF/layer:VERSION; 'caisson verify "+part[1]+" --node NAME' looks at a node's overlay", "%q is not a layer", name)
		}
		return part[1], part[3], nil
	}
	if i := strings.LastIndexByte(name, '@'); i >= 0 && !strings.ContainsRune(name[i:], '/') {
		return name[:i], name[i+1:], nil
	}
	return name, Current, nil
}
