"""Uploads in slices that a killed process left. S3 keeps them unseen, and has them paid for, until they are
aborted; Azure removes them after a week. No library lists those of Google Cloud Storage by its own interface.
"""

from contextlib import suppress
from http import HTTPStatus
from typing import Any

from pipeline.store.bucket.errors import BucketError
from pipeline.store.bucket.objects import Bucket
from pipeline.store.errors import first_line

PERMIT = "let these credentials list and abort them (s3:ListBucketMultipartUploads, s3:AbortMultipartUpload)"


def abort_unfinished(bucket: Bucket, before: float) -> None:
    """Aborts those below the store's prefix that began before this time, in seconds since 1970; on S3 alone.
    Raises BucketError.
    """
    if bucket.service.scheme != "s3":
        return
    import botocore.session
    from botocore.exceptions import BotoCoreError, ClientError

    client: Any = botocore.session.get_session().create_client("s3")
    pages = client.get_paginator("list_multipart_uploads")
    try:
        listed = pages.paginate(Bucket=bucket.name, Prefix=f"{bucket.prefix}/".lstrip("/"))
        for found in (one for page in listed for one in page.get("Uploads", ())):
            if found["Initiated"].timestamp() < before:
                upload = {"Key": found["Key"], "UploadId": found["UploadId"]}
                with suppress(client.exceptions.NoSuchUpload):  # it has ended meanwhile
                    client.abort_multipart_upload(Bucket=bucket.name, **upload)
    except (BotoCoreError, ClientError) as error:
        answer = getattr(error, "response", {}).get("ResponseMetadata", {})
        refused = answer.get("HTTPStatusCode") in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
        raise BucketError(
            f"{bucket.url}: unfinished uploads stay ({first_line(error)}), all else was done: "
            + (PERMIT if refused else "the next `gc --delete` tries again")
        ) from error
