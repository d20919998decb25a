// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"context"
	"fmt"
	"net/http"

	"github.com/caisson-os/caisson/oci"
)

// Ping asks the registry at host[:port] whether it answers, with the options'
// credentials where it wants some. It reports whether it did. Other credentials are
// a [StatusError].
func Ping(ctx context.Context, host string, o Options) (asked bool, err error) {
	find, err := o.logins(host)
	if err != nil {
		return false, err
	}
	o.AuthFile = ""
	o.Logins = func(ctx context.Context, host string) (Login, error) {
		asked = true
		return find(ctx, host)
	}
	r, err := openRegistry(oci.Ref{Host: host}, o, wholeRegistry)
	if err != nil {
		return false, err
	}
	resp, err := r.get(ctx, r.client, "", "", http.Header{}, o.patience())
	if err != nil {
		return asked, fmt.Errorf("ask %s: %w", host, err)
	}
	defer resp.Body.Close() // the status is the answer
	return asked, wantStatus(http.StatusOK)(answer{Response: resp, what: host})
}
