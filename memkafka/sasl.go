package memkafka

import (
	"bytes"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"
)

// refuseWrongCredentials answers them as Kafka does, with SASL_AUTHENTICATION_FAILED. kfake closes the connection, which
// a client can't tell from a network that fails.
func refuseWrongCredentials(c *kfake.Cluster, right plain.Auth) {
	c.ControlKey(int16(kmsg.SASLAuthenticate), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		req := kreq.(*kmsg.SASLAuthenticateRequest)
		// RFC 4616: authorization identity, NUL, user, NUL, password.
		fields := bytes.Split(req.SASLAuthBytes, []byte{0})
		if len(fields) == 3 && string(fields[1]) == right.User && string(fields[2]) == right.Pass {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.SASLAuthenticateResponse)
		resp.ErrorCode = kerr.SaslAuthenticationFailed.Code
		resp.ErrorMessage = kmsg.StringPtr("invalid user or password")
		return resp, nil, true
	})
}
