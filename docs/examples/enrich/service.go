package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
)

// service knows the countries of addresses.
type service struct {
	url    string
	client *http.Client
}

// country asks for one. If the service answers, but not with a country, the
// error is a statusError.
func (s *service) country(ctx context.Context, address string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/"+url.PathEscape(address), nil)
	if err != nil {
		return "", err
	}
	response, err := s.client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return "", statusError(response.StatusCode)
	}
	var result struct {
		Country string `json:"country"`
	}
	if err := json.NewDecoder(response.Body).Decode(&result); err != nil {
		return "", fmt.Errorf("the service's answer: %w", err)
	}
	return result.Country, nil
}

// statusError is an HTTP status.
type statusError int

func (e statusError) Error() string {
	return fmt.Sprintf("the service answers %d %s", int(e), http.StatusText(int(e)))
}

// mayPass reports whether an error is worth another attempt: whether the service
// could not be reached, took too long, or says that it has trouble itself.
func mayPass(err error) bool {
	status, ok := errors.AsType[statusError](err)
	return !ok || status == http.StatusTooManyRequests || status >= 500
}
