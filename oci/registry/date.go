// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"net/http"
	"time"
)

// Date returns the registry's time, as the Date header of its answer says. It is
// not signed. A layout has none, nor has a server that does not send it: ok is
// false.
func (r *Registry) Date(ctx context.Context) (date time.Time, ok bool) {
	s, server := r.place.(*server)
	if !server {
		return date, false
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	scheme := "https"
	if s.plain {
		scheme = "http"
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+s.ref.Host+"/v2/", nil)
	if err != nil {
		return date, false
	}
	resp, err := s.transport.RoundTrip(q) // any status has the header, 401 too
	if err != nil {
		return date, false
	}
	defer resp.Body.Close() // only its header matters
	date, err = http.ParseTime(resp.Header.Get("Date"))
	return date, err == nil
}
