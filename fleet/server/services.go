// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/http"
)

func (s *Server) getServices(w http.ResponseWriter, _ *http.Request) {
	s.answer(w, http.StatusOK, s.fleet().Services())
}

func (s *Server) servicesPage(*http.Request) (int, any, error) {
	return http.StatusOK, s.fleet().Services(), nil
}
